# isort: split
# Used by other folders of the package; not public.
from .data import DataCommand as DataCommand
from .errors import UserError as UserError, check_seed as check_seed, user_errors as user_errors
from .gates import GatesCommand as GatesCommand
from .inspect import InspectCommand as InspectCommand
from .kernel import KernelCommand as KernelCommand
from .neighbors import NeighborsCommand as NeighborsCommand
