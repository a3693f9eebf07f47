"""The sections of the page: papers, regimes, notices, claims, and experiments with their runs."""

import json
from collections.abc import Mapping, Sequence

from neuralpath.papers.claims import VERDICTS, ClaimRow, counted
from neuralpath.papers.experiments import HeatMaps, SummaryItem, Table
from neuralpath.papers.report.contents import Contents, RunStatus, SweepContents, Versions, settings_of, versions_of
from neuralpath.papers.report.markup import analysis_html, json_script, prose, slug, table_html, text
from neuralpath.papers.report.payloads import Figure, is_empty, leaves_diagonal_out, payload

# Titles and authors, as in the manual
PAPERS = {
    "P0": ("Neural Path Features in Deep Learning", "Lakshminarayanan and Singh, draft"),
    "P1": (
        "Neural Path Features and Neural Path Kernel: Understanding the role of gates in deep learning",
        "Lakshminarayanan and Singh, NeurIPS 2020",
    ),
    "P2": ("Deep Learning is Composite Kernel Learning", "under review, anonymous"),
    "P3": ("Duality simplifies deep neural networks with rectified linear units", "under review, anonymous"),
}

REGIMES = Table(
    "The five regimes",
    ("regime", "gates", "weights"),
    (
        ("ReLU", "the network's own; they change during training", "the network's own"),
        ("DL, decoupled learning", "of a second network, soft, trained at the same time", "new, trained"),
        ("FL, fixed learned", "of a trained ReLU network; fixed", "new, trained"),
        ("FR-II, fixed random, independent", "of random weights; fixed", "other random ones, trained"),
        ("FR-DI, fixed random, dependent", "of random weights; fixed", "the same random ones at the start, trained"),
    ),
    "With fixed gates only the weights are learned. The distance from FR-II and FR-DI to FL is the worth of learned "
    "gates.",
)

# The definition of the label energy, and sentences at the beginning of an experiment's section, as HTML
ENERGY = (
    "&nu; = y<sup>&top;</sup>(H + jitter)<sup>&minus;1</sup>y, for the path kernel H scaled to trace 1 and labels y "
    "of &minus;1 and 1; it is small if the labels lie along directions in which the kernel is large"
)

WITHIN_ONE_NETWORK = (
    "Compare it within one network, over training. It does not rank different networks: one with a larger energy can "
    "be the better one."
)

GUIDES = {
    "label-energy": (
        f"The label energy is {ENERGY}. No jitter is added here. {WITHIN_ONE_NETWORK}",
        "The <em>share of the labels</em> is the part of the squared length of y that lies in the leading eigenvectors "
        "of H, those with the largest eigenvalues: 1 means that these directions alone hold the labels.",
    )
}


def regimes_html(summary: Sequence[Table]) -> str:
    """The regimes, and tables that summarize them."""
    tables = "".join(table_html(table) for table in (REGIMES, *summary))
    return (
        '<section id="five-regimes"><h2>Gates of one network, weights of another</h2><p class="summary">How much of '
        "what a network has learned is in its gates? Take the gates of one network and train the weights of another "
        f"with them.</p>{tables}</section>"
    )


def papers_html() -> str:
    """The papers P0 to P3."""
    entries = "".join(
        f"<div><dt>{name}</dt><dd><cite>{text(title)}</cite>, {text(authors)}.</dd></div>"
        for name, (title, authors) in PAPERS.items()
    )
    return f'<section id="papers"><h2>The papers</h2><dl class="papers">{entries}</dl></section>'


Files = Mapping[str, tuple[str, ...]]  # addresses, relative to the page, of a figure's PDF and PNG, by its anchor


def sweep_anchor(contents: SweepContents) -> str:
    """The anchor of a sweep's section; its name has a part of its config's hash."""
    return slug(contents.sweep.name)


def figures_of(contents: SweepContents) -> dict[str, Figure]:
    """All figures of a sweep that can be drawn, by their anchors."""
    figures: dict[str, Figure] = {}
    for index, item in enumerate(contents.summary):
        if not isinstance(item, Table) and not is_empty(item):
            figures[f"{sweep_anchor(contents)}-{index + 1}-{slug(item.title)[:60].strip('-')}"] = item
    return figures


def notices_html(contents: Contents) -> str:
    """Notices before the figures: unfinished sweeps, versions, unreadable files."""
    notices = [text(problem) for problem in contents.problems]
    for sweep in contents.sweeps:
        if sweep.n_finished < len(sweep.runs):
            counts = {state: sum(run.state == state for run in sweep.runs) for state in ("failed", "damaged")}
            more = "".join(f", {count} {state}" for state, count in counts.items() if count)
            how = "is not finished" if sweep.n_finished else "has no finished run yet"
            caveat = " Its tables and figures show only these." if sweep.n_finished else ""
            notices.append(
                f'<a href="#{sweep_anchor(sweep)}">{text(sweep.sweep.experiment.name)}</a> {how}: '
                f"{sweep.n_finished} of {counted(len(sweep.runs), 'run')}{more}.{caveat}"
            )
    if len(versions := contents.versions) > 1:
        notices.append(f"The runs were done with {len(versions)} different sets of versions: {_described(versions)}.")
    if not notices:
        return ""
    items = "".join(f"<li>{notice}</li>" for notice in notices)
    return f'<section class="notices" aria-label="Notices"><h2>Notes</h2><ul>{items}</ul></section>'


def claims_html(claims: Sequence[ClaimRow]) -> str:
    """Every claim with the papers' figure, ours and the verdict; empty without claims."""
    if not claims:
        return ""
    summary = ""  # of every verdict: the number of its claims, with links to them
    for verdict in VERDICTS:
        links = [
            f'<a href="#claim-{slug(claim.number)}" title="{text(claim.claim)}">{text(claim.number)}</a>'
            for claim in claims
            if claim.verdict == verdict
        ]
        summary += f"<li>{_badge(verdict)} <b>{len(links)}</b> <span>{' '.join(links)}</span></li>"
    return (
        f'<section id="claims"><h2>Claims and verdicts</h2><ul class="verdicts">{summary}</ul>'
        f'<ol class="claims">{"".join(_claim_html(claim) for claim in claims)}</ol></section>'
    )


def _claim_html(claim: ClaimRow) -> str:
    """One claim: the figures are always visible, the reason opens on demand."""
    cells = (("paper", claim.paper), ("ours", claim.ours), ("difference", claim.difference))
    figures = "".join(
        f"<div><dt>{name}</dt>{''.join(f'<dd>{prose(line)}</dd>' for line in value.splitlines())}</div>"
        for name, value in cells
        if value not in ("", "-")
    )
    return (
        f'<li id="claim-{slug(claim.number)}"><h3><span class="claim-number">{text(claim.number)}</span> '
        f"<span>{prose(claim.claim)}</span> {_badge(claim.verdict)}</h3><dl>{figures}</dl>"
        f"<details><summary>why</summary>{analysis_html(claim.reason)}{analysis_html(claim.analysis)}</details></li>"
    )


def sweep_html(contents: SweepContents, files: Files, all_versions: Sequence[Versions]) -> str:
    """The section of one sweep: progress, tables and figures, and a list of its runs that opens on demand."""
    sweep, experiment = contents.sweep, contents.sweep.experiment
    anchors = {id(figure): anchor for anchor, figure in figures_of(contents).items()}
    items = "".join(item_html(item, anchors.get(id(item)), files) for item in contents.summary)
    items = items or '<p class="empty">Nothing to show yet.</p>'
    preset = f"preset {sweep.preset}" if sweep.preset else ""
    facts = [f'<a href="#papers">{text(experiment.source)}</a>', text(preset), f"version {text(sweep.version)}"]
    against = f'<p class="reduced">Compared with the papers: {text(sweep.reduced)}.</p>' if sweep.reduced else ""
    runs = "".join(_run_html(run, all_versions) for run in contents.runs)
    guides = "".join(f'<p class="guide">{sentence}</p>' for sentence in GUIDES.get(experiment.name, ()))
    command = f'<p class="command"><code>{text(sweep.command)}</code></p>' if sweep.command else ""
    return (
        f'<section class="sweep" id="{sweep_anchor(contents)}"><header><h2>{text(experiment.name)}</h2>'
        f'<p class="summary">{text(experiment.description[:1].upper() + experiment.description[1:])}.</p>'
        f'<p class="facts">{" · ".join(fact for fact in facts if fact)}</p>{_progress(contents)}'
        f"{against}{command}{guides}</header>{items}"
        f'<details class="runs"><summary>{counted(len(contents.runs), "run")}: settings, commands, versions</summary>'
        f"<ul>{runs}</ul></details></section>"
    )


def item_html(item: SummaryItem, anchor: str | None, files: Files) -> str:
    """A table or a figure; a figure without an anchor is shown as missing."""
    if isinstance(item, Table):
        return table_html(item)
    if anchor is None:
        return (
            f'<section class="shown missing"><h3>{text(item.title)}</h3>'
            '<p class="empty">This figure is missing: no finished run has values for it yet.</p></section>'
        )
    links = " · ".join(
        f'<a href="{text(address)}">{text(address.rsplit(".", 1)[-1].upper())}</a>' for address in files.get(anchor, ())
    )
    has_no_diagonal = isinstance(item, HeatMaps) and leaves_diagonal_out(item)
    words = prose(f"{item.note} {'The color scale leaves out the diagonal.' if has_no_diagonal else ''}")
    note = f"<span>{words}</span>" if words else ""
    caption = " ".join(part for part in (note, f'<span class="files">{links}</span>' if links else "") if part)
    return (
        f'<figure class="shown figure" id="{anchor}"><h3>{text(item.title)}</h3>'
        f'<div class="drawing" role="group" aria-label="{text(item.title)}"></div>{json_script(payload(item))}'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _progress(contents: SweepContents) -> str:
    done, total = contents.n_finished, len(contents.runs)
    state = "all runs finished" if done == total else "not finished" if done else "no run finished yet"
    kind = "done" if done == total else "partial"
    return (
        f'<p class="progress {kind}"><progress max="{total}" value="{done}" aria-label="finished runs"></progress> '
        f"{done} of {counted(total, 'run')} · {state}</p>"
    )


def _run_html(run: RunStatus, all_versions: Sequence[Versions]) -> str:
    state = run.state if run.state != "begun" else f"begun: step {run.n_steps} of {run.task.n_steps}"
    about = run.about
    seconds = f" · {about['seconds']:.3g} s" if isinstance(about.get("seconds"), int | float) else ""
    lines = [f"error: {run.error}"] if run.error else []
    if about:
        number = f" (set {all_versions.index(versions_of(about)) + 1})" if len(all_versions) > 1 else ""
        versions = ", ".join(f"{name} {value}" for name, value in versions_of(about))
        lines += [f"command: {about.get('command') or 'not kept'}", f"started: {about.get('started', 'not kept')}"]
        lines += [f"versions{number}: {versions}", f"system: {about.get('system', '?')}, {about.get('cpus', '?')} cpus"]
    settings = settings_of(run.task).items()
    lines += ["settings:", *(f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in settings)]
    return (
        f'<li><details><summary><span class="state {slug(run.state)}">{text(state)}</span> {text(run.task.name)}'
        f'<span class="figure-of-run">{text(run.headline)}{text(seconds)}</span></summary>'
        f"<pre>{text(chr(10).join(lines))}</pre></details></li>"
    )


def _badge(verdict: str) -> str:
    return f'<span class="verdict {slug(verdict)}">{text(verdict)}</span>'


def _described(versions: Mapping[Versions, int]) -> str:
    """The versions in which the sets differ, with the number of runs of each."""
    names = sorted({name for versions_set in versions for name, _ in versions_set})
    differing = [name for name in names if len({dict(versions_set).get(name) for versions_set in versions}) > 1]
    sets = []
    for number, (versions_set, count) in enumerate(versions.items(), start=1):
        listed = ", ".join(f"{text(name)} {text(dict(versions_set).get(name, 'absent'))}" for name in differing)
        sets.append(f"set {number}, {counted(count, 'run')}: {listed}")
    return "; ".join(sets)
