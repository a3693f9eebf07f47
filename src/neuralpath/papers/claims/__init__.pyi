# isort: split
# Used by other folders of the package; not public.
from .all_claims import (
    ANALYSES as ANALYSES,
    check_claims as check_claims,
    claims_markdown as claims_markdown,
    verdict_counts as verdict_counts,
)
from .estimates import counted as counted
from .rows import VERDICTS as VERDICTS, ClaimRow as ClaimRow, Records as Records, read_records as read_records
