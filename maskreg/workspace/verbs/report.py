"""Report: one self-contained page about a mask, or one of its figures as a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from maskreg.checkpoint.roles import Selection
from maskreg.disk import creating, filling, replacing
from maskreg.errors import NotFoundError, OutputExistsError, UsageError
from maskreg.progress import SILENT, Progress
from maskreg.result import Result
from maskreg.version import __version__
from maskreg.workspace.several import expanded
from maskreg.workspace.sources import sources_if_any
from maskreg.workspace.verbs.compare import MaskOptions, named_mask, spec_and_source
from maskreg.workspace.workspace import ArtifactLike, Named, Workspace, opened, split_options

if TYPE_CHECKING:
    from maskreg.analysis.papers import TableBeside
    from maskreg.digest import Digest
    from maskreg.reports.findings import Findings
    from maskreg.reports.pictures import Plot


@dataclass(frozen=True)
class Report(Result):
    """A report that was written.

    Attributes:
        ref: what the mask is called.
        digest: the mask's artifact.
        path: the page, or the figure.
        plots: the plots that were exported.
        answer: ``more``, ``not-more`` or ``open``: whether the mask is more than rounding.
        sentence: the same in a sentence.
        against: the overlap with each of the other masks, as JSON values.
        matrix: all masks beside each other, as JSON values; None for two and for one.
        papers: tables of papers with the analysis beside them, as JSON values.
        consensus: of three masks or more, how many hold each coordinate: of each matrix, where there are at most four,
            as JSON values.
        intersections: what of three to six masks lies in exactly some of them, the largest first, as JSON values.
    """

    ref: str
    digest: Digest
    path: Path
    plots: tuple[Path, ...]
    answer: str
    sentence: str
    against: tuple[Mapping[str, Any], ...]
    matrix: Mapping[str, Any] | None
    papers: tuple[Mapping[str, Any], ...]
    selection: Selection
    consensus: tuple[Mapping[str, Any], ...]
    intersections: tuple[Mapping[str, Any], ...]


class ReportOptions(MaskOptions, total=False):
    """What of masks is shown, and what was measured of the update before.

    Attributes:
        analysis: the geometry of the update, as ``analyze`` stored it; by default the artifact that is named like
            the mask with ``-analysis``, if there is one.
        trajectory: how the update grew, as ``trajectory`` returned it.
        papers: papers whose tables stand beside the analysis: ``comp``, ``dssu``, ``geo``, ``pnt`` or ``sub``.
    """

    analysis: ArtifactLike | None
    trajectory: Mapping[str, Any] | None
    papers: Sequence[str]


def report(
    artifact: ArtifactLike,
    out: str | Path,
    *,
    against: Sequence[ArtifactLike] = (),
    plots: str | Path | None = None,
    figure: str | None = None,
    format: str | None = None,
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[ReportOptions],
) -> Report:
    """Write a page about a mask, or one figure: where it lies, beside what rounding would move, and what it shares.

    Needs the ``report`` extra. Without the source, the page leaves out what needs it. A selection of roles or
    layers does not change geometry, trajectory and tables of papers. Of three masks or more, the page maps the
    consensus where at most four matrices are left.

    Args:
        against: other masks to compare it with; ``"team/run:step-*"`` stands for all tags that match it. Fifteen
            at most.
        plots: a folder for every figure in all its formats, SVG and PNG light and dark.
        figure: the one figure to write, instead of the page; the name of its files among ``plots``.
        format: of the figure: ``svg``, ``png``, ``pdf``, or its numbers as ``csv`` or ``tex``. By default the suffix of
            ``out``.
    """
    from maskreg.reports.findings import gather
    from maskreg.reports.page import page, plots_of
    from maskreg.reports.pictures import export
    from maskreg.reports.theme import require_libraries

    require_libraries()
    format = _format_of(Path(out), figure, format)
    if plots:
        _check_folder(Path(plots), Path(out), force=force)
    counted, measured = split_options(options, MaskOptions, ReportOptions)
    spec, find = spec_and_source(cast("MaskOptions", counted))
    with opened(workspace) as space:
        named = space.find(artifact)
        items = (named, *map(space.find, expanded(space, against, without=named.ref)))
        mask, *others = (named_mask(space, item) for item in items)
        shown = _measured(space, named, **measured)
        written = b""
        with filling(Path(out), lambda: len(written), what="the page"), ExitStack() as stack:
            with creating(Path(out)):
                file = stack.enter_context(replacing(Path(out), force=force))
            side, without = named.artifact.manifest.source, "; the page says nothing of rounding"
            for attempt in sources_if_any(space, side, required=spec.require_source, without=without, **find):
                with attempt as checkpoint:
                    counts = gather(mask, others, checkpoint, spec, progress=progress)
            findings = replace(counts, **shown)
            progress.start("draw the plots", 0)
            figures = plots_of(findings)
            if figure is None:
                written = page(findings, __version__, figures).encode()
            else:
                written = _file(figures, figure, format)
            file.write(written)
            # Before the page appears: a folder that cannot be written leaves no page either.
            exported = export(figures.values(), Path(plots), force=force) if plots else []
    return _result(findings, Path(out), exported)


def _format_of(out: Path, figure: str | None, format: str | None) -> str:
    """The format of the one figure, or the suffix of the page."""
    from maskreg.reports import FORMATS

    if format and figure is None:
        raise UsageError("a format is for a figure; the page is HTML", options={"figure": None})
    format = format or out.suffix.lower()[1:]
    if figure is not None and format not in FORMATS:
        fault = f"a figure cannot be {format}" if format else f"{out}: the format of the figure is missing"
        raise UsageError(fault, hint=f"choose {', '.join(FORMATS)}")
    if figure is None and format not in ("", "html", "htm"):
        raise UsageError(
            f"{out}: a report is a page of HTML, not {format}",
            hint=f"name the figure that is to be {format}, or write {out.with_suffix('.html')} without a format",
        )
    return format


def _check_folder(plots: Path, out: Path, *, force: bool) -> None:
    if plots.absolute() == out.absolute():
        raise UsageError(f"{plots} is the output already", hint="give the plots a folder of their own")
    if plots.is_file():
        raise OutputExistsError(plots, reason="and is not a folder", hint=f"write {plots.with_suffix('')}-plots")
    if not force and plots.is_dir() and any(plots.iterdir()):
        raise OutputExistsError(plots)


def _file(figures: Mapping[str, Plot], name: str, format: str) -> bytes:
    """One figure as a file."""
    from maskreg.reports.pictures import writers
    from maskreg.reports.theme import LIGHT

    if name not in figures:
        raise UsageError(f"this report has no figure {name!r}", hint=f"choose {', '.join(figures)}")
    return writers(figures[name])[format](LIGHT)


def _result(findings: Findings, path: Path, plots: Sequence[Path]) -> Report:
    from maskreg.reports.words import answer

    mark, _, sentence = answer(findings)
    return Report(
        findings.name,
        findings.digest,
        path,
        tuple(plots),
        mark,
        sentence,
        tuple({"ref": other.name, **other.overlap.to_json()} for other in findings.others),
        None if findings.matrix is None else findings.matrix.to_json(),
        tuple(table.to_json() for table in findings.papers),
        findings.selection,
        tuple(picture.to_json() for picture in findings.consensus),
        tuple(asdict(each) for each in findings.intersections),
    )


def _measured(
    space: Workspace,
    mask: Named,
    analysis: ArtifactLike | None = None,
    trajectory: Mapping[str, Any] | None = None,
    papers: Sequence[str] = (),
) -> dict[str, Any]:
    """Fields of the findings that come from earlier measurements."""
    from maskreg.artifact.analysis import read_analysis
    from maskreg.reports.geometry import geometry_of, trajectory_of

    stored = _analysis(space, mask, analysis)
    document = None if stored is None else read_analysis(stored.artifact)
    return {
        "geometry": None if stored is None or document is None else geometry_of(stored.name, document),
        "trajectory": None if trajectory is None else trajectory_of(trajectory),
        "papers": _beside(papers, mask, document),
    }


def _beside(papers: Sequence[str], mask: Named, document: Mapping[str, Any] | None) -> tuple[TableBeside, ...]:
    from maskreg.analysis.papers import beside, check_paper

    for name in papers:
        check_paper(name)
    if papers and document is None:
        raise UsageError(f"{mask.name} was not analyzed, so nothing can stand beside a paper", analyzed=mask.name)
    return tuple(table for name in papers for table in beside(name, document or {}))


def _analysis(space: Workspace, mask: Named, analysis: ArtifactLike | None) -> Named | None:
    """The analysis that was named, or that is named like the mask; None without one."""
    if analysis is None and mask.ref is None:
        return None
    name = analysis or (replace(mask.ref, name=f"{mask.ref.name}-analysis", digest=None) if mask.ref else "")
    try:
        named = space.find(name)
    except NotFoundError:
        if analysis is not None:
            raise
        return None
    if named.artifact.manifest.parents != (str(mask.digest),):
        if analysis is None:
            # Of what the name pointed to before.
            return None
        raise UsageError(f"{named.name} is not an analysis of {mask.name}", analyzed=mask.name)
    return named
