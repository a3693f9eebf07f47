# isort: split
# Used by other folders of the package; not public.
from .pages import ClaimsCommand as ClaimsCommand, DemoCommand as DemoCommand, ReportCommand as ReportCommand
from .results import ExportCommand as ExportCommand, ShowCommand as ShowCommand, StatusCommand as StatusCommand
from .run import ListCommand as ListCommand, RunCommand as RunCommand, run_experiment as run_experiment
