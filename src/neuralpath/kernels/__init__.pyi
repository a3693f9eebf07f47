from .diagnostics import (
    LabelEnergySplit as LabelEnergySplit,
    alignment as alignment,
    centered_alignment as centered_alignment,
    condition_number as condition_number,
    label_energy as label_energy,
    label_energy_by_eigenvector as label_energy_by_eigenvector,
    spectrum as spectrum,
)
from .dynamics import GradientSteps as GradientSteps, KernelDynamics as KernelDynamics
from .kernel import Kernel as Kernel, LinearKernel as LinearKernel
from .kernel_spread import (
    Concentration as Concentration,
    concentration as concentration,
    fitted_power as fitted_power,
    printed_variance_bound as printed_variance_bound,
    spectrum_ratio as spectrum_ratio,
)
from .limit.limit_kernel import (
    LimitKernel as LimitKernel,
    limit_output_kernel as limit_output_kernel,
    limit_path_kernel as limit_path_kernel,
    limit_tangent_kernel as limit_tangent_kernel,
)
from .limit.limit_parts import LimitParts as LimitParts, limit_tangent_parts as limit_tangent_parts
from .limit.quadrature import ByQuadrature as ByQuadrature
from .path.path_kernel import (
    ExpectedTangentKernel as ExpectedTangentKernel,
    FanVariance as FanVariance,
    PathKernel as PathKernel,
    expected_tangent_kernel as expected_tangent_kernel,
    path_kernel as path_kernel,
)
from .random_values import random_weights as random_weights, value_kernel as value_kernel
from .storage.stored_kernel import StoredKernel as StoredKernel, open_kernel as open_kernel
from .tangent.parts import TangentParts as TangentParts, tangent_parts as tangent_parts
from .tangent.tangent_kernel import TangentKernel as TangentKernel, tangent_kernel as tangent_kernel
from .tiling import BudgetTooSmall as BudgetTooSmall, Tile as Tile, TiledKernel as TiledKernel

# isort: split
# Used by other folders of the package; not public.
from .diagnostics import ROUNDING as ROUNDING
from .path.pair_tiles import dense_chain as dense_chain, image_chain as image_chain
from .path.path_kernel import weight_variances as weight_variances
from .random_values import random_signs as random_signs
from .storage.stored_kernel import find_kernel as find_kernel
from .storage.verification import differences as differences
from .tiling import Cost as Cost, Plan as Plan, make_plan as make_plan, refuse_overflow as refuse_overflow
