"""The page in headless Chromium: nothing goes wrong, everything is drawn, and the explorer's numbers are Python's."""

import math
import re
from copy import deepcopy

import pytest
import torch

import neuralpath as npath
from neuralpath import data, nets
from neuralpath.papers.report.contents import Contents, read_contents
from neuralpath.papers.report.explorer import ExplorerNetwork, find_network, kernel_picture
from neuralpath.papers.report.page import page_html, plotly_source, write_report
from neuralpath.paths.neighbors import nearest
from papers.report.small_runs import contents_of_every_kind, some_claims

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4
N_FIGURES = 8
"""The picture of the kernel, and one of every kind that can be drawn."""

NEAREST = {"byKernel": "kernel", "byGates": "gates", "byPaths": "paths", "byPixels": "input"}
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


class Watched:
    """A page with everything that it has asked for or complained about."""

    def __init__(self, browser, path, **settings):
        self.context = browser.new_context(**{"viewport": DESK, **settings})
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def scroll_through(self):
        place = 0
        while place < self.page.evaluate("document.documentElement.scrollHeight"):
            self.page.evaluate("top => window.scrollTo({ top, behavior: 'instant' })", place)
            self.page.wait_for_timeout(60)
            place += 400

    def reading(self):
        return self.page.evaluate("gateExplorer")

    def close(self):
        """Fails on any complaint, and on any request but that of the page itself and of what it holds."""
        self.page.wait_for_timeout(50)
        self.context.close()
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith("data:")] == self.requests[:1]
        assert self.requests[0].startswith("file:")


FOLLOW = """anchor => {
    const ended = () => new Promise((done, fail) => {
        addEventListener("scrollend", done, { once: true });
        setTimeout(() => fail(new Error("no end of the scrolling within 60 s")), 60000);
    });
    const toTop = async () => {
        if (scrollY === 0) return;
        const top = ended();
        scrollTo({ top: 0, behavior: "instant" });
        await top;
    };
    const click = async () => {
        const there = ended();
        document.querySelector(`nav a[href="${anchor}"]`).click();
        await there;
    };
    return toTop().then(click);
}"""
"""Follow a link of the contents from the top of the page, until the browser reports that its scrolling has ended."""

DISTANCE = """anchor => {
    const top = document.querySelector(anchor).getBoundingClientRect().top;
    const atEnd = Math.abs(innerHeight + scrollY - document.documentElement.scrollHeight) < 2;
    return atEnd && top > 0 ? 0 : Math.abs(top - document.querySelector(".top").getBoundingClientRect().height);
}"""
"""Pixels between a section and the bar at the top; 0 at the end, where the last sections cannot come up to the bar."""


@pytest.fixture(scope="module")
def networks(store):
    """One with biases, of a run, and one without, of another shape."""
    trained = find_network(read_contents(store).sweeps, store)
    digits = data.load("digits")
    generator = torch.Generator().manual_seed(0)
    before, after = (nets.FC((1, 8, 8), (24, 16), n_outputs=10, generator=generator) for _ in range(2))
    free = ExplorerNetwork(
        "free", "two layers", before, after, data.Split(digits.train.images[:200], digits.train.labels[:200]),
        data.Split(digits.test.images[:50], digits.test.labels[:50]), None,
    )  # fmt: skip
    return {"biases": trained, "no biases": free}


@pytest.fixture(scope="module")
def pages(networks, tmp_path_factory):
    """The page with every kind of figure, once for each network."""
    folder, plotly, paths = tmp_path_factory.mktemp("pages"), plotly_source(), {}
    for name, network in networks.items():
        contents = contents_of_every_kind() if name == "biases" else Contents((), ())
        paths[name] = folder / f"{name}.html"
        kernel = kernel_picture(network)
        paths[name].write_text(page_html(contents, network, plotly, claims=some_claims(), kernel=kernel))
    return paths


@pytest.fixture
def open_page(browser, pages):
    opened = []

    def make(name="biases", explorer=True, **settings):
        watched = Watched(browser, pages[name], **settings)
        opened.append(watched)
        if explorer:
            watched.page.locator("#explorer").scroll_into_view_if_needed()
            watched.page.wait_for_selector("#x-root[data-ready]")
        return watched

    yield make
    for watched in opened:
        watched.close()


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_figure_is_drawn(open_page, theme, viewport):
    watched = open_page(explorer=False, viewport=viewport, color_scheme=theme)
    page = watched.page
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    figures = page.locator("figure.figure")
    assert page.locator("figure.figure[data-drawn]").count() < figures.count()  # the far ones wait
    watched.scroll_through()
    assert page.locator("figure.figure[data-drawn]").count() == figures.count() == N_FIGURES
    for index in range(figures.count()):
        drawing = figures.nth(index).locator(".drawing")
        marks = drawing.locator(".scatterlayer .trace, .boxlayer .trace, .heatmaplayer image, .picture-row canvas")
        assert marks.count() > 0, figures.nth(index).get_attribute("id")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_legends_and_labels_stay_inside_their_figures(open_page):
    for viewport in (PHONE, DESK):
        watched = open_page(explorer=False, viewport=viewport)
        watched.scroll_through()
        outside = watched.page.evaluate("""() => [...document.querySelectorAll('.drawing text, .drawing .legend')]
            .filter((one) => {
                const box = one.getBoundingClientRect(), frame = one.closest('.drawing').getBoundingClientRect();
                return box.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1
                    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
            }).map((one) => one.textContent)""")
        assert outside == []


def test_figures_follow_the_window_and_lose_nothing(open_page):
    watched = open_page(explorer=False)
    watched.scroll_through()
    page = watched.page
    for width in (1000, 600, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(600)
        sizes = page.evaluate("""() => [...document.querySelectorAll('.drawing.js-plotly-plot')].map((place) => {
            const frame = place.getBoundingClientRect();
            const drawn = place.querySelector('.main-svg').getBoundingClientRect();
            return [frame.right - drawn.right, frame.bottom - drawn.bottom, drawn.width / frame.width];
        })""")
        assert len(sizes) == N_FIGURES - 1  # pictures are no plots
        assert all(right > 0 and bottom > 0 and filled > 0.9 for right, bottom, filled in sizes)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_nothing_in_a_figure_sends_it_away(open_page):
    page = open_page(explorer=False).page
    page.locator("figure.figure").first.scroll_into_view_if_needed()
    page.wait_for_selector("figure.figure[data-drawn] .modebar-btn")
    titles = page.evaluate("[...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)")
    assert "Zoom" in titles
    assert not [title for title in titles if re.search("share|cloud|edit|send|upload", title, re.IGNORECASE)]
    assert page.locator(".modebar-btn[data-title*='plotly' i]").count() == 0


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_links_lead_to_their_sections(open_page, pages, viewport):
    watched = open_page(explorer=False, viewport=viewport)
    watched.page.wait_for_selector("#x-root[data-ready]")
    anchors = watched.page.evaluate("[...document.querySelectorAll('nav a')].map((link) => link.getAttribute('href'))")
    assert {"#explorer", "#kernel", "#papers"} < set(anchors)

    for anchor in (anchors[-2], "#kernel", anchors[-1]):
        watched.page.evaluate(FOLLOW, anchor)
        assert watched.page.evaluate(DISTANCE, anchor) < 24, anchor
    other = watched.context.new_page()
    other.goto(f"{pages['biases'].as_uri()}{anchors[-2]}")
    other.wait_for_selector("#x-root[data-ready]")
    other.wait_for_function(f"({DISTANCE})('{anchors[-2]}') < 24")


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_nothing_moves_when_figures_are_drawn(open_page, viewport):
    """The room of every figure is reserved, so a link leads to its section whatever is drawn on the way."""
    watched = open_page(explorer=False, viewport=viewport)
    watched.page.wait_for_selector("#x-root[data-ready]")
    heights = "[...document.querySelectorAll('main > *, .drawing')].map((one) => one.getBoundingClientRect().height)"
    reserved = watched.page.evaluate(heights)
    assert watched.page.locator("figure.figure[data-drawn]").count() < N_FIGURES
    watched.scroll_through()
    assert watched.page.locator("figure.figure[data-drawn]").count() == N_FIGURES
    assert watched.page.evaluate(heights) == reserved


def test_a_finger_on_a_figure_scrolls_the_page(open_page):
    watched = open_page(explorer=False, viewport=PHONE, has_touch=True, is_mobile=True)
    page = watched.page
    drawing = page.locator("figure.figure .drawing").nth(1)
    drawing.evaluate("place => place.scrollIntoView({ block: 'center', behavior: 'instant' })")
    page.wait_for_selector("figure.figure[data-drawn] .nsewdrag")
    page.wait_for_timeout(500)
    box = drawing.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    assert page.evaluate(f"document.elementFromPoint({x}, {y}).closest('.draglayer') !== null")
    before, client = page.evaluate("scrollY"), watched.context.new_cdp_session(page)

    def touch(kind, *points):
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": at} for at in points]})

    touch("touchStart", y)
    for step in range(1, 16):
        touch("touchMove", y - 10 * step)
        page.wait_for_timeout(16)
    touch("touchEnd")
    page.wait_for_timeout(300)
    assert abs(page.evaluate("scrollY") - before) > 100


def test_what_was_hidden_stays_hidden_in_another_size_and_theme(open_page):
    watched = open_page(explorer=False)
    page = watched.page
    watched.scroll_through()
    hidden = "[...document.querySelectorAll('.legend .traces')].filter((one) => one.style.opacity === '0.5').length"
    page.locator(".legendtoggle").first.click()
    page.wait_for_timeout(700)
    assert page.evaluate(hidden) == 1
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_timeout(700)
    assert page.evaluate(hidden) == 1
    page.locator("#theme").click()
    page.locator("#theme").click()
    page.wait_for_timeout(300)
    assert page.evaluate(hidden) == 1


def test_the_theme_can_be_switched_and_figures_follow(open_page):
    page = open_page(explorer=False, color_scheme="light").page
    page.locator("figure.figure").first.scroll_into_view_if_needed()
    page.wait_for_selector("figure.figure[data-drawn] .xtick")
    ink = "getComputedStyle(document.querySelector('.drawing .xtick text')).fill"
    before = page.evaluate(ink)
    button = page.locator("#theme")
    button.focus()
    page.keyboard.press("Enter")
    assert button.text_content() == "Theme: light"
    page.keyboard.press("Enter")
    assert button.text_content() == "Theme: dark"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(ink) != before


def test_all_figures_are_there_for_the_printer(open_page):
    watched = open_page(explorer=False, color_scheme="dark")
    page = watched.page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("figure.figure[data-drawn]").count() == N_FIGURES
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.locator(".claims details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".claims details[open]").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.pdf().startswith(b"%PDF")


def check_numbers(reading, network):
    """Everything that the explorer says, against the library, in double precision, for the same images."""
    model = deepcopy(network.before if reading["stage"] == "before" else network.after).double()
    shape = network.test.images.shape[1:]
    x, second = (
        torch.tensor(reading[name], dtype=torch.float64).reshape(1, *shape) for name in ("pixels", "secondPixels")
    )
    train = network.train.images.double()
    graph = npath.trace(model, x)
    with torch.no_grad():
        outputs = model(x)[0]
    close(reading["outputs"], outputs)
    assert reading["prediction"] == int(outputs.argmax())
    for name, image in (("gates", x), ("secondGates", second)):
        for ours, theirs in zip(reading[name], graph.gates(image).layers.values(), strict=True):
            assert ours == theirs[0].int().tolist()
    close([reading["logAll"]], [math.log(graph.n_paths)])
    close([reading["logActive"]], npath.log_active_paths(graph, x))
    close([reading["logActiveSecond"]], npath.log_active_paths(graph, second))
    close([reading["logShared"]], npath.log_shared_paths(graph, x, second)[0])
    shares = npath.base_kernels(graph, x, second)
    for layer, share, gates in zip(reading["layers"], shares.values(), reading["gates"], strict=True):
        close([layer["both"] / len(gates)], share.flatten())
    for name, by in NEAREST.items():
        ours, values = reading[name], [one["value"] for one in reading[name]]
        found, every = (nearest(graph, x, train, k, by=by) for k in (8, len(train)))
        close(values, found.values[0])
        # Of equally near images rounding may choose, so each one is looked up too.
        of_image = dict(zip(every.indices[0].tolist(), every.values[0].tolist(), strict=True))
        close(values, [of_image[one["index"]] for one in ours])


def close(ours, theirs):
    ours, theirs = (torch.tensor([float(value) for value in some], dtype=torch.float64) for some in (ours, theirs))
    assert ours.shape == theirs.shape
    assert torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE), (ours, theirs)


@pytest.mark.parametrize("name", ["biases", "no biases"])
def test_numbers_are_those_of_the_library(open_page, networks, name):
    watched = open_page(name)
    page, network = watched.page, networks[name]
    check_numbers(watched.reading(), network)
    for stage in ("before", "after"):
        page.locator(f"input[name=x-stage][value={stage}]").check()
        for index in (3, 17, 31):
            page.locator(f"#x-first-list-{index}").click()
            page.locator(f"#x-second-list-{2 * index}").click()
            reading = watched.reading()
            assert reading["stage"] == stage
            pixels = torch.tensor(reading["pixels"]).reshape(network.test.images.shape[1:])
            assert torch.equal(pixels, network.test.images[index])
            second = torch.tensor(reading["secondPixels"]).reshape(network.train.images.shape[1:])
            assert torch.equal(second, network.train.images[2 * index])
            check_numbers(reading, network)


def test_numbers_on_the_screen_are_those_of_the_reading(open_page):
    watched = open_page()
    page = watched.page
    page.locator("#x-first-list-5").click()
    reading = watched.reading()
    assert f"The network says {reading['prediction']}" in page.locator("#x-prediction").text_content()
    words = page.locator("#x-paths").text_content()
    for name in ("logActive", "logActiveSecond", "logShared"):
        assert f"{reading[name] / math.log(10):.4f}" in words
    assert f"{round(math.exp(reading['logActive'])):,}" in words  # a small network's paths are few enough to write out
    for layer, panel in zip(reading["layers"], page.locator(".gate-layer dl").all(), strict=True):
        numbers = [text.split()[0] for text in panel.locator("dd").all_text_contents()]
        assert numbers == [str(layer[name]) for name in ("first", "second", "both")]


def test_each_measure_has_its_row_and_its_sentence(open_page):
    watched = open_page()
    page = watched.page
    page.locator("#x-first-list-2").click()
    reading = watched.reading()
    rows = {"kernel": "byKernel", "gates": "byGates", "pixels": "byPixels"}
    for row, name in rows.items():
        digits = 2 if row == "pixels" else 3
        shown = page.locator(f"#x-near-{row} button").all_text_contents()
        assert [words[-digits - 2 :] for words in shown] == [f"{one['value']:.{digits}f}" for one in reading[name]]
    shown = page.locator("#x-near-paths button").all_text_contents()
    for words, one in zip(shown, reading["byPaths"], strict=True):
        share = float(words.split("class ")[1][1:].removesuffix(" %"))
        assert share == pytest.approx(100 * math.exp(one["value"] - reading["logActive"]), rel=0.06)
    words = page.locator("#x-near-title").locator("..").text_content()
    for sentence in (
        "Pixels times gates",
        "Gates alone",
        "It favors images that open many gates",
        "Without the network",
    ):
        assert sentence in words


def test_switching_between_before_and_after(open_page):
    watched = open_page()
    after = watched.reading()
    watched.page.get_by_label("before training", exact=True).check()
    before = watched.reading()
    assert before["stage"] == "before"
    assert before["pixels"] == after["pixels"]
    assert before["gates"] != after["gates"]
    assert [one["index"] for one in before["byPixels"]] == [one["index"] for one in after["byPixels"]]


def test_a_second_image_from_the_test_images_or_the_neighbors(open_page, networks):
    watched = open_page()
    page, network = watched.page, networks["biases"]
    page.locator("input[name=x-second-source][value=test]").check()
    page.locator("#x-second-list-4").click()
    second = torch.tensor(watched.reading()["secondPixels"]).reshape(network.test.images.shape[1:])
    assert torch.equal(second, network.test.images[4])
    check_numbers(watched.reading(), network)
    nearest_one = watched.reading()["byPaths"][0]
    page.locator("#x-near-paths button").first.click()
    reading = watched.reading()
    assert page.locator("input[name=x-second-source][value=train]").is_checked()
    assert abs(reading["logShared"] - nearest_one["value"]) < TOLERANCE
    page.locator("#x-second-list-0").click()
    page.locator("input[name=x-second-source][value=test]").check()
    page.locator("#x-second-list-0").click()  # the first image itself
    assert watched.reading()["logShared"] == watched.reading()["logActive"]


def test_drawing_on_the_canvas(open_page, networks):
    watched = open_page()
    page = watched.page
    page.locator("input[name=x-source][value=drawn]").check()
    assert sum(watched.reading()["pixels"]) == 0
    assert "Draw a digit" in page.locator("#x-prediction").text_content()
    check_numbers(watched.reading(), networks["biases"])
    box = page.locator("#x-canvas").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"], steps=8)
    page.mouse.up()
    drawn = watched.reading()
    assert 1 < sum(drawn["pixels"]) < 40
    assert all(0 <= value <= 1 for value in drawn["pixels"])
    check_numbers(drawn, networks["biases"])
    page.locator("#x-fit").uncheck()
    as_drawn = torch.tensor(watched.reading()["pixels"]).reshape(8, 8)
    assert as_drawn[:, 3:5].sum() > 0.9 * as_drawn.sum()  # a stroke down the middle, where it was drawn
    check_numbers(watched.reading(), networks["biases"])
    page.locator("#x-clear").click()
    assert sum(watched.reading()["pixels"]) == 0


def test_the_explorer_by_keyboard(open_page, networks):
    watched = open_page()
    page, images = watched.page, networks["biases"].test.images

    def shown():
        pixels = torch.tensor(watched.reading()["pixels"]).reshape(images.shape[1:])
        return next(index for index, image in enumerate(images) if torch.equal(image, pixels))

    page.locator("#x-first-list [role=listbox]").focus()
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", len(images) - 1), ("Home", 0),
                          ("ArrowLeft", 0)):  # fmt: skip
        page.keyboard.press(key)
        assert shown() == expected
    page.keyboard.press("ArrowDown")
    below = shown()
    assert below > 1
    page.keyboard.press("ArrowUp")
    assert shown() == 0
    selected = page.locator("#x-first-list [aria-selected=true]")
    assert selected.count() == 1
    assert selected.get_attribute("id") == "x-first-list-0"
    page.locator("input[name=x-stage][value=after]").focus()
    page.keyboard.press("ArrowLeft")
    assert watched.reading()["stage"] == "before"
    page.locator("input[name=x-source][value=test]").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#x-fit").uncheck()
    page.locator("#x-canvas").focus()
    for key in ("ArrowLeft", " ", "ArrowDown", " "):
        page.keyboard.press(key)
    drawn = torch.tensor(watched.reading()["pixels"]).reshape(8, 8)
    assert drawn.nonzero().tolist() == [[4, 3], [5, 3]]
    page.keyboard.press("Backspace")
    drawn = torch.tensor(watched.reading()["pixels"]).reshape(8, 8)
    assert drawn.nonzero().tolist() == [[4, 3]]  # and the pen, which is drawn too, is no ink
    page.locator("#x-near-pixels button").nth(2).focus()
    page.keyboard.press("Enter")
    assert page.locator("input[name=x-second-source][value=train]").is_checked()
    pressed = page.locator("#x-near-pixels button").nth(2)
    assert pressed.get_attribute("aria-pressed") == "true"
    assert pressed.evaluate("one => one === document.activeElement")


def ink_extent(image):
    """Rows or columns of a training image between the first and the last with ink, whichever are more."""
    places = (image[0] > 0.25).nonzero()
    return int((places.max(0).values - places.min(0).values).max()) + 1


def test_a_drawing_by_the_keys_gets_the_size_of_the_training_images(open_page, networks):
    watched = open_page()
    page = watched.page
    page.locator("input[name=x-source][value=drawn]").check()
    page.locator("#x-canvas").focus()
    for key in (" ", "ArrowDown", " ", "ArrowDown", " "):
        page.keyboard.press(key)
    drawn = torch.tensor(watched.reading()["pixels"]).reshape(8, 8)
    images = networks["biases"].train.images
    usual = sum(ink_extent(image) for image in images) / len(images)
    # A bar of three squares keeps its form: as high as the digits are, and a third as wide.
    assert float(drawn.sum(0).max()) == pytest.approx(usual, abs=0.3)
    assert float(drawn.sum(1).max()) == pytest.approx(usual / 3, abs=0.3)


def test_everything_that_can_be_pressed_has_a_name(open_page):
    page = open_page().page
    nameless = page.evaluate("""() => [...document.querySelectorAll('button, input, [role=listbox], canvas')]
        .filter((one) => !(one.textContent.trim() || one.getAttribute('aria-label') || one.closest('label')
            || one.closest('[aria-label]')))
        .map((one) => one.outerHTML)""")
    assert nameless == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(open_page, theme):
    """At least 4.5 to 1 between the colors of text and what lies behind it."""
    page = open_page(explorer=False, color_scheme=theme).page
    pairs = [("ink", "paper"), ("soft", "paper"), ("soft", "faint"), ("soft", "raised"), ("accent", "paper"),
             ("accent-ink", "accent"), ("good", "good-back"), ("partly", "partly-back"), ("bad", "bad-back"),
             ("unknown", "unknown-back"), ("partly", "paper")]  # fmt: skip
    for front, back in pairs:
        read = "name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()"
        colors = [page.evaluate(read, name) for name in (front, back)]
        lighter, darker = sorted(map(luminance, colors), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (theme, front, back)


def luminance(color):
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_page_of_200_runs_opens(browser, many_runs, tmp_path):
    written = write_report(many_runs, tmp_path / "page.html", figures=tmp_path / "figures")
    watched = Watched(browser, written.page)
    navigation = watched.page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    print(f"opened in {navigation / 1000:.2f} s, {written.n_bytes / 1e6:.1f} MB")
    assert watched.page.locator(".runs li").count() >= 200
    watched.page.locator(".runs > summary").click()
    watched.page.locator(".runs li summary").nth(150).click()
    assert "settings:" in watched.page.locator(".runs li pre").nth(150).text_content()
    watched.close()
