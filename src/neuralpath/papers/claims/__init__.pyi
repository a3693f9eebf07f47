# isort: split
# Used by other folders of the package; not public.
from .all_claims import ANALYSES as ANALYSES, check_claims as check_claims
from .markdown import claims_markdown as claims_markdown, verdict_counts as verdict_counts
from .rows import VERDICTS as VERDICTS, ClaimRow as ClaimRow
from .sweep_records import Records as Records, read_records as read_records
