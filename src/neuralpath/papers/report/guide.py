"""What a reader has to know to read the page: the papers, the regimes, and the words of some experiments."""

from collections.abc import Sequence

from neuralpath.papers.experiments import Table
from neuralpath.papers.report.markup import text
from neuralpath.papers.report.tables import table_html

PAPERS = {
    "P0": ("Neural Path Features in Deep Learning", "Lakshminarayanan and Singh, draft"),
    "P1": (
        "Neural Path Features and Neural Path Kernel: Understanding the role of gates in deep learning",
        "Lakshminarayanan and Singh, NeurIPS 2020",
    ),
    "P2": ("Deep Learning is Composite Kernel Learning", "under review, anonymous"),
    "P3": ("Duality simplifies deep neural networks with rectified linear units", "under review, anonymous"),
}
"""Titles and authors, as in the manual's page Theory."""

REGIMES = Table(
    "The five regimes",
    ("regime", "gates", "weights behind them"),
    (
        ("ReLU", "the network's own; they change as it trains", "the network's own"),
        ("DL, decoupled learning", "of a second network, soft, trained along", "drawn anew, trained"),
        ("FL, fixed learnt", "of a trained ReLU network; they stay as they are", "drawn anew, trained"),
        ("FR-II, fixed random, independent", "of random weights; they stay as they are", "other random ones, trained"),
        ("FR-DI, fixed random, dependent", "of random weights; they stay as they are", "start as the same, trained"),
    ),
    "Where gates stay as they are, only weights are learnt: what FR-II and FR-DI fall behind FL is what gates that "
    "were learnt are worth.",
)

ENERGY = (
    "&nu; = y<sup>&top;</sup>(H + jitter)<sup>&minus;1</sup>y, for the path kernel H scaled to trace 1 and labels y "
    "of &minus;1 and 1; it is small where the labels lie along directions in which the kernel is large"
)
"""The definition of the label energy, as HTML."""

WITHIN_ONE_NETWORK = (
    "Compare it within one network, over training. It does not order different networks: one with a larger energy may "
    "well be the better one."
)

GUIDES = {
    "label-energy": (
        f"The label energy is {ENERGY}. No jitter is added here. {WITHIN_ONE_NETWORK}",
        "The <em>share of the labels</em> is the part of the squared length of y that lies in the leading eigenvectors "
        "of H, those with the largest eigenvalues: 1 means that these directions alone hold the labels.",
    ),
}
"""Sentences, as HTML, that an experiment's section opens with."""


def guide_html(experiment: str) -> str:
    """The sentences that explain an experiment's words; nothing for experiments whose notes say enough."""
    return "".join(f'<p class="guide">{sentence}</p>' for sentence in GUIDES.get(experiment, ()))


def regimes_html(summary: Sequence[Table]) -> str:
    """What the regimes are, and tables that sum them up where there are any."""
    tables = "".join(table_html(table) for table in (REGIMES, *summary))
    return (
        '<section id="five-regimes"><h2>Gates of one network, weights of another</h2><p class="summary">How much of '
        "what a network has learnt is in its gates? Take the gates of one network, put the weights of another behind "
        f"them, and train these.</p>{tables}</section>"
    )


def papers_html() -> str:
    """P0 to P3, by which experiments name where the papers have them."""
    entries = "".join(
        f"<div><dt>{name}</dt><dd><cite>{text(title)}</cite>, {text(authors)}.</dd></div>"
        for name, (title, authors) in PAPERS.items()
    )
    return f'<section id="papers"><h2>The papers</h2><dl class="papers">{entries}</dl></section>'
