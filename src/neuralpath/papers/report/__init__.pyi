# isort: split
# Used by other folders of the package; not public.
from .drawings import draw as draw
from .explorer import cosine_maps as cosine_maps, cosines as cosines
from .page import MissingExtra as MissingExtra, require as require, write_report as write_report
from .sections import WITHIN_ONE_NETWORK as WITHIN_ONE_NETWORK
