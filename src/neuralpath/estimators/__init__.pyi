from .cholesky import SingularKernel as SingularKernel
from .classifier import KernelClassifier as KernelClassifier
from .leave_one_out import LeaveOneOut as LeaveOneOut, RidgePath as RidgePath
from .regressor import KernelRegressor as KernelRegressor
from .sketch import SketchClassifier as SketchClassifier, SketchRegressor as SketchRegressor
from .solving import SolveReport as SolveReport
