# isort: split
# Used by other folders of the package; not public.
from .claims import Claims as Claims
from .demo import Demo as Demo
from .experiments import Experiments as Experiments
from .report import Report as Report
from .results import Collect as Collect, Export as Export, Show as Show, Status as Status
from .run import Run as Run, run_experiment as run_experiment
