"""The dashboard in a real browser, with a running job: each view, by keys and by clicks, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from browser import Browser
from watched_job import Agent, running_agent, running_job

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "-")

TOKEN = "0123456789abcdef"
VIEWS = ("now", "history", "checkpoints", "data")
# What each view must say once there is data.
WORDS = {
    "now": ["The way of a sample", "input stall", "What the doctor says", "Cache", "rank 1"],
    "history": ["Samples a second", "Where the workers' time went", "decode"],
    "checkpoints": ["The life of step", "safe: local", "remote"],
    "data": ["samples delivered", "How images were decoded", "In the node's cache"],
}


@pytest.fixture(scope="module")
def agent(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("node")
    near, far = folder / "near", folder / "far"
    with (
        running_job(photos, folder / "run", ranks=2, store=far, near=near),
        running_agent(folder / "run", near) as agent,
    ):
        agent.wait("history", lambda h: len(h["processes"]) == 2)
        agent.wait("findings", lambda f: f["runs"] and f["runs"][0]["has_samples"])
        agent.wait("datasets", lambda d: d["datasets"] and d["datasets"][0]["facts"])
        agent.wait(
            "checkpoints",
            lambda c: (
                c.get("stores")
                and len(c["stores"][0]["checkpoints"]) > 1
                and any(len(one["places"]) == 2 for one in c["stores"][0]["checkpoints"])
            ),
        )
        yield agent


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with Browser() as page:
        yield page


def visit(page: Browser, url: str) -> None:
    """Load the page anew, also where only what is behind '#' differs."""
    page.open("about:blank")
    page.open(url)


def shown(page: Browser, view: str) -> None:
    """Wait until a view is drawn."""
    page.wait(f"document.getElementById('view').dataset.shown === '{view}'")
    # What follows the first answers may come a little later.
    words = "".join(
        f" && document.getElementById('view').textContent.includes({word!r})"
        for word in WORDS[view]
    )
    page.wait(f"true{words}")


def fits(page: Browser) -> bool:
    """Nothing but tables, which scroll by themselves, is wider than the window."""
    wide: bool = page.run(
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    return wide


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_each_view_is_drawn(agent: Agent, page: Browser, scheme: str, width: int) -> None:
    page.prefer(scheme)
    page.resize(width, 900, phone=width < 500)
    visit(page, agent.url)
    assert page.run("return document.documentElement.dataset.theme") == scheme
    for number, view in enumerate(VIEWS, 1):
        page.press(str(number))
        shown(page, view)
        assert page.run("return location.hash").count(f"view={view}") == 1
        assert fits(page), view
        # Every picture says in words what it shows.
        assert page.run(
            "return [...document.querySelectorAll('main figure > svg')]"
            ".every(s => s.getAttribute('role') === 'img' && s.getAttribute('aria-label').length > 9)"
        )
    assert page.complaints() == []


def test_what_sets_the_pace_is_lit_and_said(agent: Agent, page: Browser) -> None:
    visit(page, agent.url)
    shown(page, "now")
    page.wait("document.querySelectorAll('.flow .lit').length === 1")
    assert "sets the pace" in page.run("return document.querySelector('.flow .lit').innerText")


def test_clicks_and_arrows_lead_through_the_views(agent: Agent, page: Browser) -> None:
    page.resize(1280, 900)
    visit(page, agent.url)
    shown(page, "now")
    for view in VIEWS[1:]:
        page.click(f"#tab-{view}")
        shown(page, view)
    page.press("ArrowRight")  # around the end
    shown(page, "now")
    page.press("ArrowLeft")
    shown(page, "data")
    assert page.run("return document.activeElement.id") == "tab-data"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.run(f"return {outline}") == "solid"  # where the focus is, is seen
    assert page.complaints() == []


def test_choices_are_kept_in_the_address(agent: Agent, page: Browser) -> None:
    page.prefer("light")
    visit(page, agent.url + "#view=history&theme=dark&span=21600")
    shown(page, "history")
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    assert page.run("return document.getElementById('span').value") == "21600"
    page.press("t")
    page.wait("document.documentElement.dataset.theme === 'light'")
    page.press("1")
    shown(page, "now")
    page.press("j")
    page.wait("location.hash.includes('rank=')")
    page.wait("document.getElementById('rank').value.endsWith('.sock')")
    page.press("p")
    assert (
        page.run("return document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    )
    assert page.complaints() == []


def test_one_checkpoint_is_chosen(agent: Agent, page: Browser) -> None:
    visit(page, agent.url + "#view=checkpoints")
    shown(page, "checkpoints")
    page.press("p")  # the table stands still
    steps = "[...document.querySelectorAll('main td button')]"
    chosen = page.run(f"const b = {steps}[1]; b.focus(); return b.textContent")
    page.press("Enter")
    page.wait(f"document.querySelector('main h3').textContent.includes('step {chosen}')")
    assert page.run("return location.hash").count("checkpoint=") == 1


def test_names_are_text_and_never_markup(photos: Path, tmp_path: Path, page: Browser) -> None:
    evil = "<img src=x onerror=\"document.title='broken'\"><script>1</script>"
    with (
        running_job(photos, tmp_path / "run", name=evil),
        running_agent(tmp_path / "run") as agent,
    ):
        agent.wait("node", lambda n: n["live"] == 1)
        visit(page, agent.url)
        page.wait("document.querySelectorAll('.flow li').length > 2")
        assert page.run("return document.getElementById('run').selectedOptions[0].text") == evil
        assert page.run("return document.querySelectorAll('img, main script').length") == 0
        assert "broken" not in page.run("return document.title")
        assert page.complaints() == []


def test_an_agent_without_jobs_says_so(tmp_path: Path, page: Browser) -> None:
    with running_agent(tmp_path / "run") as agent:
        visit(page, agent.url)
        for view in VIEWS:
            page.click(f"#tab-{view}")
            page.wait(f"document.getElementById('view').dataset.shown === '{view}'")
            page.wait("document.querySelector('main .nothing') !== null")
        assert page.complaints() == []
    # An agent that is gone is told of, and what was shown stays.
    page.wait("document.getElementById('state').textContent.includes('cannot be reached')")


def test_a_token_is_asked_for(tmp_path: Path, page: Browser) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with running_agent(tmp_path / "run", "--token-file", file, token=TOKEN) as agent:
        visit(page, agent.url)
        page.wait("!document.getElementById('login').hidden")
        page.type("#token", "wrong-wrong-wrong-wrong")
        page.press("Enter")
        page.wait("document.getElementById('state').textContent.includes('not the agent')")
        page.type("#token", TOKEN)
        page.press("Enter")
        page.wait("document.getElementById('login').hidden")
        page.wait("document.getElementById('view').dataset.shown === 'now'")
        assert TOKEN not in page.run("return location.href")
