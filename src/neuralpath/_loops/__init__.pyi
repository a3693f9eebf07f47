# isort: split
# Used by other folders of the package; not public.
from .compiled import (
    has_loops as has_loops,
    in_threads as in_threads,
    n_threads as n_threads,
    one_thread as one_thread,
    side_by_side as side_by_side,
    use_bits as use_bits,
)
from .dense import PackedLayers as PackedLayers, multiply_by_overlaps as multiply_by_overlaps, overlaps as overlaps
from .image_loops import (
    WindowSteps as WindowSteps,
    image_chains as image_chains,
    total_sums as total_sums,
    window_sums as window_sums,
)
from .limit_loops import (
    CONVOLUTION as CONVOLUTION,
    IMAGES as IMAGES,
    POOL as POOL,
    Program as Program,
    bend_of as bend_of,
)
from .packed import (
    WORD as WORD,
    Words as Words,
    arrange_positions as arrange_positions,
    n_short_words as n_short_words,
    n_words as n_words,
    pack as pack,
    pack_positions as pack_positions,
)
from .winograd_loops import (
    POINTS as POINTS,
    STEP as STEP,
    from_points as from_points,
    to_points as to_points,
    to_windows as to_windows,
)
