"""The page itself, which Streamlit runs anew whenever something was changed on it."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from streaming.cli.output import size
from streaming.simulate.page import as_html
from streaming.simulate.report import Report
from streaming.simulate.setup import Setup, StreamSetup
from streaming.simulate.show import facts, tables
from streaming.simulate.web.fields import (
    DESCRIBED,
    REMOTE,
    SECTIONS,
    START,
    STREAMS,
    Field,
    check,
    explained,
    plain_values,
)
from streaming.simulate.web.predictions import predicted, suggested
from streaming.storage import StoreError

NAMES = "ABCDEF"  # what plans are called; there are as many at most
COLORS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2")
CURVES = {
    "samples_per_s": "samples/s",
    "bytes_per_s": "MB/s a node receives",
    "waited": "% of the time waited",
}

Values = dict[str, Any]


def main() -> None:
    """Show the page."""
    st.set_page_config(page_title="Plan of a run", layout="wide")
    plans = _plans()
    st.title("Plan of a run")
    with st.sidebar:
        name = _choose(plans)
        places = _form(name, plans[name])
    setups, reports = {}, {}
    for each, values in plans.items():
        setup, wrong = check(values)
        if setup is not None:
            try:
                started = time.perf_counter()
                reports[each] = predicted(setup)
                setups[each] = setup
                took = time.perf_counter() - started
            except (ValueError, StoreError) as error:
                wrong = explained(error, values)
        if each == name:
            _show_wrong(wrong, places)
        elif wrong:
            st.error(f"Plan {each}: {' '.join(wrong.values())}")
    if reports:
        _show(reports)
    if name in reports:
        _suggest(name, setups[name])
        _offer_files(plans[name], reports[name])
        st.caption(f"Simulated in {took:.2f} s: {reports[name].note}.")


def _plans() -> dict[str, Values]:
    """The plans of this session by their names."""
    if "plans" not in st.session_state:
        given = [json.loads(each) for each in sys.argv[1:]]
        st.session_state.plans = dict(zip(NAMES, given or [START], strict=False))
    plans: dict[str, Values] = st.session_state.plans
    return plans


def _choose(plans: dict[str, Values]) -> str:
    chosen = st.segmented_control(
        "Plan", list(plans), default=next(iter(plans)), required=True, key="chosen"
    )
    name = chosen if chosen in plans else next(iter(plans))
    add, remove = st.columns(2)
    add.button(
        "Copy",
        on_click=_copy,
        args=(name,),
        disabled=len(plans) == len(NAMES),
        width="stretch",
    )
    remove.button(
        "Remove", on_click=_remove, args=(name,), disabled=len(plans) == 1, width="stretch"
    )
    return name


def _copy(name: str) -> None:
    plans = st.session_state.plans
    new = next(each for each in NAMES if each not in plans)
    plans[new] = dict(plans[name])
    st.session_state.chosen = new


def _remove(name: str) -> None:
    plans = st.session_state.plans
    del plans[name]
    st.session_state.chosen = next(iter(plans))


def _form(plan: str, values: Values) -> dict[str, Any]:
    """The settings of a plan to be changed; returns where to say what is wrong with each."""
    places: dict[str, Any] = {"": st.empty()}
    with st.expander("Data", expanded=True):
        _data(plan, values, places)
    for section, fields in SECTIONS.items():
        with st.expander(section, expanded=section in ("Machines", "Training", "Cache")):
            for field in fields:
                _field(plan, values, field, places)
    return places


def _data(plan: str, values: Values, places: dict[str, Any]) -> None:
    if STREAMS in values:
        values[STREAMS] = st.text_area(
            "Streams, as YAML", values[STREAMS], height=240, key=f"{plan}.{STREAMS}"
        )
        places[STREAMS] = st.empty()
        return
    is_there = st.toggle(
        "A data set that is there", value=bool(values.get("remote")), key=f"{plan}.is_there"
    )
    fields = [REMOTE] if is_there else DESCRIBED
    for field in fields:
        _field(plan, values, field, places)
    for other in DESCRIBED if is_there else [REMOTE]:
        values.pop(other.name, None)


def _field(plan: str, values: Values, field: Field, places: dict[str, Any]) -> None:
    """A field, and beneath it the place for what is wrong with it."""
    key, value = f"{plan}.{field.name}", values.get(field.name, _default(field.name))
    if field.is_flag:
        value = st.checkbox(field.label, value, help=field.help, key=key)
    elif field.choices:
        value = _select(field, value, key)
    elif field.most is not None:
        value = _slider(field, value, key)
    else:
        value = st.text_input(
            field.label, "" if value is None else str(value), help=field.help, key=key
        )
    values[field.name] = value
    places[field.name] = st.empty()


def _default(name: str) -> Any:
    return getattr(Setup, name, getattr(StreamSetup, name, ""))


def _select(field: Field, value: Any, key: str) -> Any:
    choices = list(field.choices)
    if value not in choices:
        choices = sorted([*choices, value], key=lambda each: (isinstance(each, str), each))
    if all(isinstance(each, int) for each in choices):
        return st.select_slider(field.label, choices, value, help=field.help, key=key)
    return st.selectbox(field.label, choices, choices.index(value), help=field.help, key=key)


def _slider(field: Field, value: Any, key: str) -> Any:
    kind = float if isinstance(field.step, float) else int
    assert field.most is not None
    value = kind(value)
    return st.slider(
        field.label,
        kind(min(field.least, value)),
        kind(max(field.most, 2 * value if value > field.most else 0)),
        value,
        kind(field.step),
        format="%.4g" if kind is float else None,
        help=field.help,
        key=key,
    )


def _show_wrong(wrong: dict[str, str], places: dict[str, Any]) -> None:
    for name, said in wrong.items():
        places.get(name, places[""]).error(said)
    if wrong:
        st.warning("Mend the settings marked in red to see this plan.")


def _show(reports: dict[str, Report]) -> None:
    _show_facts(reports)
    st.altair_chart(_curves(reports), width="stretch")
    for (name, report), column in zip(reports.items(), st.columns(len(reports)), strict=True):
        with column:
            for title, headings, rows in tables(report):
                if title == "Epochs":
                    st.markdown(f"**{title} of plan {name}**")
                    names = [heading.lstrip(">") for heading in headings]
                    st.dataframe(pd.DataFrame(rows, columns=names), hide_index=True)


def _show_facts(reports: dict[str, Report]) -> None:
    """What each plan comes to, the plans side by side."""
    first = next(iter(reports.values()))
    for (name, report), column in zip(reports.items(), st.columns(len(reports)), strict=True):
        with column, st.container(border=True):
            change = report.samples_per_s / first.samples_per_s - 1 if first.samples_per_s else 0
            is_other = abs(change) >= 0.0005
            st.metric(
                f"Plan {name}",
                f"{report.samples_per_s:,.0f} samples/s",
                f"{change:+.1%}" if is_other else None,
            )
            if report.thrashes:
                st.warning(
                    "The cache is too small: shards are fetched again within an epoch. It needs "
                    f"{size(report.smallest_cache_limit)}."
                )
    columns = {name: dict(facts(report)) for name, report in reports.items()}
    found = pd.DataFrame(columns).drop(["throughput", "simulated"])
    st.table(found.rename(columns="Plan {}".format).fillna(""), border="horizontal")


def _curves(reports: dict[str, Report]) -> Any:
    """Plots over time, a line for each plan."""
    parts = []
    for name, report in reports.items():
        line = report.timeline
        frame = pd.DataFrame({"seconds": line.seconds, "plan": name})
        frame["samples_per_s"] = line.samples_per_s
        frame["bytes_per_s"] = [each / 1e6 for each in line.bytes_per_s]
        frame["waited"] = [100 * each for each in line.waited]
        parts.append(frame)
    data = pd.concat(parts)
    names = list(reports)
    color = alt.Color(
        "plan:N",
        scale=alt.Scale(domain=names, range=[COLORS[NAMES.index(name)] for name in names]),
        legend=None if len(names) == 1 else alt.Legend(orient="top", title=None),
    )
    whole = all(report.timeline.is_whole for report in reports.values())
    seconds = "seconds" if whole else "seconds (of the simulated parts)"
    base = alt.Chart(data).mark_line(interpolate="step-before", strokeWidth=1.5)
    panels = [
        base.encode(
            x=alt.X("seconds:Q", title=seconds if curve == "waited" else None),
            y=alt.Y(f"{curve}:Q", title=title, scale=alt.Scale(domainMin=0)),
            color=color,
            tooltip=["plan", "seconds", curve],
        ).properties(height=150, width="container")
        for curve, title in CURVES.items()
    ]
    return alt.vconcat(*panels).resolve_scale(x="shared")


def _suggest(name: str, setup: Setup) -> None:
    if not st.toggle("Look for better settings", key="suggesting"):
        return
    found = suggested(setup)
    if not found:
        st.success(f"Nothing better was found than plan {name}.")
    for each in found:
        said, button = st.columns([5, 1])
        value = "none" if each.value is None else f"{each.value:,}"
        said.markdown(
            f"**{each.setting}: {value}** — {each.reason} "
            f"({each.samples_per_s:,.0f} samples/s, {size(each.bytes)} fetched)"
        )
        button.button(
            "Take it",
            key=f"take.{each.setting}",
            on_click=_take,
            args=(name, each.setting, each.value),
        )


def _take(plan: str, setting: str, value: Any) -> None:
    """Change a setting of a plan, as if it had been put in."""
    before = st.session_state.get(f"{plan}.{setting}")
    put = ("" if value is None else str(value)) if isinstance(before, str) else value
    st.session_state.plans[plan][setting] = st.session_state[f"{plan}.{setting}"] = put


def _offer_files(values: Values, report: Report) -> None:
    import yaml

    given = plain_values(values)
    if isinstance(given.get(STREAMS), str):
        given[STREAMS] = yaml.safe_load(given[STREAMS])
    settings, page = st.columns(2)
    settings.download_button(
        "Settings, for shardstream plan",
        yaml.safe_dump(given, sort_keys=False),
        "plan.yaml",
        on_click="ignore",
        width="stretch",
    )
    page.download_button(
        "Report, as a page",
        lambda: as_html(report),
        "plan.html",
        on_click="ignore",
        width="stretch",
    )


if __name__ == "__main__":
    main()
