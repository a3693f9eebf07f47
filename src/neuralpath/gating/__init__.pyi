from .hyperplanes import draw_hyperplanes as draw_hyperplanes, gate_hyperplanes as gate_hyperplanes
from .linear_gated import LinearGatedCNN as LinearGatedCNN, LinearGatedFC as LinearGatedFC
from .matching import TileGates as TileGates
from .network import GatedNetwork as GatedNetwork
from .regimes import decouple as decouple
from .swapping import recorded_gates as recorded_gates, run_with_gates as run_with_gates
from .value_inputs import RandomImage as RandomImage

# isort: split
# Used by other folders of the package; not public.
from .matching import GateTransform as GateTransform, GateTransforms as GateTransforms
from .swapping import sample_gates as sample_gates
from .value_inputs import drawn_late as drawn_late
