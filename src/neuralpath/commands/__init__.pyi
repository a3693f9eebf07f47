# isort: split
# Used by other folders of the package; not public.
from .arguments import UserError as UserError, check_seed as check_seed
from .data import DataCommand as DataCommand
from .gates import GatesCommand as GatesCommand
from .inspect import InspectCommand as InspectCommand
from .kernel import KernelCommand as KernelCommand
from .neighbors import NeighborsCommand as NeighborsCommand
