from . import label_energy as label_energy, label_noise as label_noise
from .registry import NAMES as NAMES, get as get

# isort: split
# Used by other folders of the package; not public.
from . import (
    gate_orders as gate_orders,
    hidden_outputs as hidden_outputs,
    kernels as kernels,
    linear_gating as linear_gating,
    regimes as regimes,
    residual as residual,
    stages as stages,
    tilings as tilings,
)
from .base_kernels import GateOverlaps as GateOverlaps
from .experiment import (
    PRESETS as PRESETS,
    MisfitResults as MisfitResults,
    Results as Results,
    Sweep as Sweep,
    fitting_results as fitting_results,
)
from .kernel_draws import (
    ApproachLimits as ApproachLimits,
    DrawKernels as DrawKernels,
    DrawnFamily as DrawnFamily,
    TrainLazily as TrainLazily,
)
from .kernel_parts import NORMS as NORMS, TraceKernelParts as TraceKernelParts
from .kernel_tasks import WidenValue as WidenValue
from .label_energy import TraceLabelEnergy as TraceLabelEnergy
from .random_labels import FitPair as FitPair, Memorize as Memorize
from .registry import collect as collect, read_sweeps as read_sweeps, sweep_from_json as sweep_from_json
from .seed_tables import (
    Printed as Printed,
    Seeds as Seeds,
    When as When,
    accuracies as accuracies,
    accuracy as accuracy,
    finished as finished,
    printed as printed,
)
from .settings import chosen_parts as chosen_parts
from .specs import (
    DataSpec as DataSpec,
    NetSpec as NetSpec,
    TrainingRecipe as TrainingRecipe,
    Variant as Variant,
    check_tasks as check_tasks,
)
from .statistics import Paired as Paired, Spread as Spread, paired as paired, spread as spread
from .summary_items import (
    Cell as Cell,
    Curve as Curve,
    Curves as Curves,
    Distribution as Distribution,
    HeatMaps as HeatMaps,
    Pictures as Pictures,
    SummaryItem as SummaryItem,
    Table as Table,
)
from .theorem import LAW_FROM as LAW_FROM, law_of as law_of
from .trained import (
    GatedRegime as GatedRegime,
    TrainGated as TrainGated,
    TrainNetwork as TrainNetwork,
    ValueInputName as ValueInputName,
)
