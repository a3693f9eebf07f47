"""The parts that the page is made of, each by itself."""

import base64
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import neuralpath as npath
from neuralpath import nets
from neuralpath.data import Split
from neuralpath.papers.experiments.registry import get
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Curve, Curves, HeatMaps, Table
from neuralpath.papers.report import contents
from neuralpath.papers.report.contents import read_contents
from neuralpath.papers.report.drawings import DASHES, PALETTE, _make, class_middles, draw
from neuralpath.papers.report.explorer import ExplorerNetwork, cosines, export, find_network, kernel_picture
from neuralpath.papers.report.markup import cell_html, json_script, prose, slug, table_html
from neuralpath.papers.report.payloads import band, grey, is_empty, payload, scale_of, styles_of
from papers.report.small_runs import figures_of_every_kind, small_sweep, write_made_up


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, "&ndash;"), (float("nan"), "&ndash;"), (-1.5, "&minus;1.5"), (3, "3"), ("a<b", "a&lt;b"),
        (1 / 3, "0.33333"), (Spread.of([1.0, 3.0]), "2.00 "), (Spread.of([1.0, 3.0]), "± 1.41"),
        (Spread.of([1.0, 3.0]), "(2)"), (Spread.of([1.0]), "(1)"), (Spread.of([98.2, 98.3], 2), "98.25 "),
        (Spread.of([0.00401, 0.00399]), "0.004000 "), (Spread.of([0.00401, 0.00399]), "± 0.000014"),
        (Spread.of([-2e-7, -4e-7]), "&minus;3.00e&minus;07 "), (Spread.of([-2e-7, -4e-7]), "± 1.4e&minus;07"),
    ],
)  # fmt: skip
def test_cells(cell, shown):
    assert shown in cell_html(cell)


def test_columns_of_printed_figures_are_aligned_as_numbers():
    table = Table("t", ("name", "paper", "ours"), (("a", "97.10 ± 0.09", None), ("b", "95.85", None), ("c", "9%", 1.0)))
    assert table_html(table).count('<th scope="col" class="number">') == 2


def test_columns_that_are_empty_throughout_are_left_out_once_there_are_results():
    rows = (("a", None, 1.0, float("nan")), ("b", None, None, None))
    shown = table_html(Table("t", ("name", "paper %", "ours", "in standard errors"), rows))
    assert re.findall(r"<th[^>]*>([^<]*)</th>", shown) == ["name", "ours"]
    assert shown.count("&ndash;") == 1  # a cell that is empty alone stays
    unfinished = table_html(Table("t", ("name", "paper %", "ours"), (("a", None, None),)))
    assert re.findall(r"<th[^>]*>([^<]*)</th>", unfinished) == ["name", "paper %", "ours"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("y' H^-1 y for H", "y<sup>&top;</sup> H<sup>&minus;1</sup> y for H"),
        ("K^V and K^(d)", "K<sup>V</sup> and K<sup>d</sup>"),
        ("the papers' H <b>", "the papers&#x27; H &lt;b&gt;"),
        ("Of 40. 3 of 3 runs are finished.", "Of 40."),
        ("3 of 3 runs are finished. More.", "More."),
        ("13 of 3 runs are finished.", "13 of 3 runs are finished."),
        ("2 of 3 runs are finished.", "2 of 3 runs are finished."),
    ],
)
def test_notes_have_formulas_and_do_not_repeat_that_all_is_finished(words, shown):
    assert prose(words) == shown


def test_the_picture_of_the_kernel_is_the_library_s(store):
    network = find_network(read_contents(store).sweeps, store)
    picture = kernel_picture(network)
    assert list(picture.classes) == sorted(picture.classes)
    assert len(picture.classes) == 200
    first = network.train.images[(network.train.labels == 0).nonzero()[:20, 0]]
    for name, model in (("before training", network.before), ("after training", network.after)):
        kernel = npath.path_kernel(npath.trace(model, first[:1]), first)
        expected = kernel / kernel.diagonal().sqrt() / kernel.diagonal().sqrt()[:, None]
        block = torch.tensor([row[:20] for row in picture.maps[name][:20]])
        assert torch.allclose(block, expected, atol=1e-3)


def test_images_without_active_paths_have_no_direction():
    kernel = torch.tensor([[4.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert cosines(kernel).tolist() == [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def test_rows_of_two_classes_have_their_names():
    config = get("label-energy").presets["smoke"]
    maps = HeatMaps("t", {"m": ((1.0, 0.0), (0.0, 1.0))}, (-1, 1))
    assert contents._with_classes(maps, config).classes == (4, 7)
    assert contents._with_classes(maps, replace(config, data=DataSpec("digits"))) is maps
    assert contents._with_classes(HeatMaps("t", {}), config).classes is None


def test_band_of_a_logarithmic_axis_stays_above_0():
    curve = Curve("c", (1.0, 2.0), (1.0, 2.0), (3.0, 0.5))
    assert band(curve, log_y=False) == ([-2.0, 1.5], [4.0, 2.5])
    assert band(curve, log_y=True) == ([0.1, 1.5], [4.0, 2.5])
    assert band(Curve("c", (1.0,), (1.0,)), log_y=True) is None


def test_values_that_are_no_numbers_leave_gaps():
    figure = Curves("t", "x", "y", (Curve("c", (1.0, 2.0), (math.nan, 123456.789)),))
    assert payload(figure)["curves"][0]["y"] == [None, 123460.0]
    assert is_empty(Curves("t", "x", "y", (Curve("c", (1.0,), (math.nan,)),)))
    assert is_empty(HeatMaps("t", {}))


def test_grey_images_are_scaled_by_themselves():
    assert grey(((0.0, 1.0), (0.5, 2.0))) == [[0, 128], [64, 255]]
    assert grey(((3.0, 3.0),)) == [[0, 0]]


def test_json_cannot_end_its_element():
    script = json_script({"a": "</script><!-- \u2028"})
    assert script.count("</script>") == 1
    assert "<!--" not in script
    body = script.partition(">")[2].removesuffix("</script>")
    assert json.loads(body) == {"a": "</script><!-- \u2028"}


def test_words():
    assert slug("K^V: 50 % of π") == "k-v-50-of"


@pytest.mark.parametrize("figure", figures_of_every_kind()[:7], ids=lambda figure: figure.title)
def test_every_kind_of_figure_becomes_a_file(figure, tmp_path):
    pdf, png = draw(figure, tmp_path, "figure")
    assert pdf.read_bytes().startswith(b"%PDF")
    assert png.read_bytes().startswith(b"\x89PNG")
    again, _ = draw(figure, tmp_path, "again")
    assert again.read_bytes() == pdf.read_bytes()


def test_curves_of_one_name_have_one_color():
    def styles(*names):
        return styles_of(Curves("t", "x", "y", tuple(Curve(name, (1.0,), (1.0,)) for name in names)))

    everything = styles("ReLU", "DL", "FL", "FR-II", "FR-DI")
    assert styles("ReLU", "FL", "FR-II") == [everything[0], everything[2], everything[3]]
    assert styles("d = 2, expected", "d = 2, drawn", "d = 3, expected", "d = 3, drawn") == [
        (0, 0), (0, 1), (1, 0), (1, 1)
    ]  # fmt: skip
    assert styles("ReLU image", "FL image", "FL ones") == [(0, 0), (2, 0), (2, 1)]
    assert styles(*(f"{a}, {b}" for a in "xy" for b in "12345"))[5:7] == [(0, 1), (1, 1)]
    assert styles("a, b", "c, d") == [(0, 0), (1, 0)]  # no pairs of two lists
    many = styles(*map(str, range(20)))
    assert len(set(many)) == 20
    assert all(color < len(PALETTE) and dash < len(DASHES) for color, dash in many)


def test_files_have_fonts_that_publishers_take(tmp_path):
    pdf, _ = draw(figures_of_every_kind()[0], tmp_path, "figure")
    assert b"/Type3" not in pdf.read_bytes()


@pytest.mark.parametrize(
    ("values", "ticks"), [((2, 4, 8, 16, 32, 64), ["2", "4", "8", "16", "32", "64"]), ((7e3, 2e4), ["7,000", "10,000"])]
)
def test_logarithmic_axes_can_be_read(values, ticks):
    figure = Curves("t", "x", "y", (Curve("c", tuple(map(float, values)), tuple(1.0 for _ in values)),), log="x")
    made = _make(figure)
    made.canvas.draw()
    shown = [label.get_text() for label in made.axes[0].get_xticklabels()]
    assert set(ticks) <= set(shown)


def test_the_scale_of_a_kernel_is_not_that_of_its_diagonal():
    rows = ((1.0, 0.2, 0.1), (0.2, 1.0, 0.3), (0.1, 0.3, 1.0))
    assert scale_of(HeatMaps("t", {"a": rows}, (0, 0, 1))) == (0.1, 0.3)
    assert scale_of(HeatMaps("t", {"a": rows})) == (0.1, 1.0)  # rows and columns may be anything
    assert scale_of(HeatMaps("t", {"a": ()})) == (0.0, 1.0)


def test_ticks_of_classes_are_in_their_middle():
    assert class_middles((4, 4, 4, 7)) == {4: 1.0, 7: 3.0}


def test_exported_weights_and_images_are_the_network_s(store):
    network = find_network(read_contents(store).sweeps, store)
    assert isinstance(network, ExplorerNetwork)
    made = export(network)
    values = base64.b64decode(made["stages"]["after"][0]["weights"])
    first = next(module for module in network.after.modules() if isinstance(module, torch.nn.Linear))
    assert torch.equal(torch.from_numpy(np.frombuffer(values, "<f4").copy()).reshape(first.weight.shape), first.weight)
    pixels = (
        np.frombuffer(base64.b64decode(made["train"]["pixels"]), np.uint8).astype(np.float32) / made["train"]["scale"]
    )
    assert torch.equal(torch.from_numpy(pixels).reshape(network.train.images.shape), network.train.images)
    before = next(module for module in network.before.modules() if isinstance(module, torch.nn.Linear))
    assert not torch.equal(before.weight, first.weight)


def test_the_network_before_training_is_where_training_began(store):
    network = find_network(read_contents(store).sweeps, store)
    task = next(run.task for run in read_contents(store).sweeps[0].runs if run.task.name == network.name)
    for name, value in task.make().state_dict().items():
        assert torch.equal(network.before.state_dict()[name], value)
    saved = store.directory(task).weights_of(task, "last")
    assert all(torch.equal(network.after.state_dict()[name], value) for name, value in saved.items())


def test_images_that_are_not_bytes_are_written_in_full():
    images = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    split = Split(images, torch.arange(20) % 10)
    model = nets.FC((1, 4, 4), 8, 3, 10)
    made = export(ExplorerNetwork("n", "a", model, model, split, split, None))
    assert made["test"]["scale"] is None
    values = np.frombuffer(base64.b64decode(made["test"]["pixels"]), "<f4").copy()
    assert torch.equal(torch.from_numpy(values).reshape(images.shape), images)


def test_records_without_weights_give_no_network(tmp_path):
    store = write_made_up(tmp_path, small_sweep())
    network = find_network(read_contents(store).sweeps, store)
    assert network == "the weights of its networks are not kept in this folder"
