"""Analyses of claims inside the page."""

from pathlib import Path

from neuralpath.papers.report.markup import analysis_html

RESULTS = Path(__file__).parents[3] / "results"


def test_paragraphs_tables_and_code():
    html = analysis_html(
        "One *and* a `b < c` & more\nof it.\n\n| a | b |\n| --- | --- |\n| 1 | `x` |\n\n    y = x\n      z\n\nEnd.\n"
    )
    assert html == (
        "<p>One <em>and</em> a <code>b &lt; c</code> &amp; more of it.</p>"
        '<div class="scroll"><table><thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
        "<tbody><tr><td>1</td><td><code>x</code></td></tr></tbody></table></div>"
        "<pre>y = x\n  z</pre><p>End.</p>"
    )
    assert analysis_html("") == ""


def test_the_kept_analyses_need_nothing_else():
    for path in (RESULTS / "analyses").glob("*.md"):
        html = analysis_html(path.read_text())
        for mark in ("`", "|", "**", "](", "##"):
            assert mark not in html, f"{mark} in {path.name}"
