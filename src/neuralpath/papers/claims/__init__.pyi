# isort: split
# Used by other folders of the package; not public.
from .analyses import ANALYSES as ANALYSES
from .claim_verdict import VERDICTS as VERDICTS, ClaimVerdict as ClaimVerdict
from .costs import Costs as Costs
from .evidence import Evidence as Evidence, gather as gather
from .judging import claim_verdicts as claim_verdicts, judge_all as judge_all
from .markdown import claims_markdown as claims_markdown, summary as summary
