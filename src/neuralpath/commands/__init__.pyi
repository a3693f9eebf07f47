from .gates import Gates as Gates
from .neighbors import Neighbors as Neighbors

# isort: split
# Used by other folders of the package; not public.
from .data import Data as Data
from .errors import UserError as UserError
from .inspect import Inspect as Inspect
from .kernel import Kernel as Kernel
from .seeds import check_seed as check_seed
