# isort: split
# Used by other folders of the package; not public.
from .assets import MissingExtra as MissingExtra, require as require
from .drawings import class_middles as class_middles
from .guide import WITHIN_ONE_NETWORK as WITHIN_ONE_NETWORK
from .kernel_picture import cosine_maps as cosine_maps, cosines as cosines
from .markup import plural as plural
from .page import write_report as write_report
