"""What the page of a verdict looks like: colours for light and for dark, and one style sheet.

Colours are of Okabe and Ito (2008), which colour-blind readers tell apart. Text has a contrast of 4.5 or more with what
it stands on, shapes one of 3 or more (WCAG 2.2, AA).
"""

LIGHT = {
    "paper": "#fdfcf9",
    "panel": "#f4f2ec",
    "ink": "#1d1f23",
    "quiet": "#5a5e66",
    "line": "#dcd8cf",
    "mark": "#fbe3ab",
    "accent": "#0072b2",
    "front": "#009e73",
    "base": "#d55e00",
    "other": "#5a5e66",
}

DARK = {
    "paper": "#14161a",
    "panel": "#1d2026",
    "ink": "#ebe8e1",
    "quiet": "#abb0b8",
    "line": "#383c44",
    "mark": "#5e4300",
    "accent": "#56b4e9",
    "front": "#009e73",
    "base": "#e69f00",
    "other": "#abb0b8",
}


def style_sheet() -> str:
    """The text of the page's only `<style>`."""
    light, dark = (" ".join(f"--{name}: {value};" for name, value in each.items()) for each in (LIGHT, DARK))
    return (
        f":root {{color-scheme: light dark; {light}}}\n@media (prefers-color-scheme: dark) {{:root {{{dark}}}}}\n"
        + (f"{PAGE}{TABLE}{PICTURE}{EXAMPLES}{SMALL}")
    )


PAGE = """
* {box-sizing: border-box;}
html {-webkit-text-size-adjust: 100%; text-size-adjust: 100%;}
body {margin: 0; background: var(--paper); color: var(--ink); font: 17px/1.6 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere;}
main {max-width: 62rem; margin: 0 auto; padding: 4.5rem 2rem 6rem;}
h1, h2, h3 {text-wrap: balance;}
h1 {font: 500 clamp(1.7rem, 1.1rem + 2.3vw, 2.75rem)/1.2 ui-serif, "Iowan Old Style", Charter, Georgia, serif;
  letter-spacing: -.012em; margin: 0 0 1.25rem; max-width: 26em;}
h2 {font: 500 1.5rem/1.25 ui-serif, "Iowan Old Style", Charter, Georgia, serif; margin: 4rem 0 1rem;}
h3 {font-size: 1rem; font-weight: 600; margin: 2rem 0 .5rem;}
p, ul, dl, figure {margin: 0 0 1rem;}
p, li {max-width: 44rem;}
.kicker {font-size: .875rem; color: var(--quiet); margin-bottom: 1.25rem;}
.lede {font-size: 1.15rem; line-height: 1.55;}
.note, figcaption {font-size: .875rem; color: var(--quiet); max-width: 48rem;}
ul {padding-left: 1.2rem;}
li {margin-bottom: .35rem;}
.facts {display: grid; grid-template-columns: repeat(4, 1fr); gap: 1px; background: var(--line);
  border: solid var(--line); border-width: 1px 0; margin: 2.5rem 0 0;}
.facts div {background: var(--paper); padding: 1rem 1rem 1rem 0;}
.facts div + div {padding-left: 1.25rem;}
dt {font-size: .8125rem; color: var(--quiet);}
dd {margin: 0; font-variant-numeric: tabular-nums;}
.facts dd {font-size: 1.35rem; line-height: 1.3;}
.facts dd small {display: block; font-size: .8125rem; color: var(--quiet);}
pre {background: var(--panel); border-radius: .5rem; padding: .9rem 1.1rem; overflow-x: auto; max-width: 100%;
  font: .875rem/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap; margin: 0 0 1rem;}
details {border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); margin: 1.5rem 0;}
details + details {border-top: 0; margin-top: -1.5rem;}
summary {cursor: pointer; padding: .75rem 0; color: var(--accent);}
summary:focus-visible, pre:focus-visible {outline: 2px solid var(--accent); outline-offset: 2px;}
"""

TABLE = """
table {border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9375rem;
  margin: 0 0 1rem;}
caption {text-align: left; font-size: .875rem; color: var(--quiet); padding-bottom: .5rem;}
th, td {text-align: right; padding: .6rem 0 .6rem 1.25rem; border-bottom: 1px solid var(--line);
  vertical-align: baseline; font-weight: 400;}
thead th {font-size: .8125rem; color: var(--quiet); border-bottom-color: var(--quiet); vertical-align: bottom;}
th:first-child, td:first-child {padding-left: 0; width: 2.2rem; text-align: left;}
th.name, td.name {text-align: left;}
tbody th {font-weight: 500;}
td small {display: block; color: var(--quiet); font-size: .8125rem;}
.systems td {white-space: nowrap;}
tr.taken th, tr.taken td:first-child {font-weight: 700; color: var(--accent);}
.tag {font-size: .75rem; font-weight: 500; border: 1px solid currentColor; border-radius: 1rem; padding: .05rem .5rem;
  margin-left: .4rem; white-space: nowrap;}
table.narrow {width: auto; min-width: 18rem;}
table.narrow th:first-child {width: auto;}
"""

PICTURE = """
figure {margin: 0 0 1rem;}
svg.picture {display: block; width: 100%; height: auto; overflow: visible;}
svg.narrow, span.narrow {display: none;}
svg text {fill: var(--ink);}
svg .tick, svg .axis {fill: var(--quiet); font-size: .92em;}
svg .axis {font-weight: 500;}
.grid {stroke: var(--line); stroke-width: 1;}
.break {fill: none; stroke: var(--quiet); stroke-width: 1.2;}
.zero {stroke: var(--quiet); stroke-width: 1;}
.front {fill: none; stroke: var(--front); stroke-width: 2; stroke-linejoin: round; opacity: .9;}
.bar {stroke: var(--other); stroke-width: 1.6; stroke-linecap: round;}
.bar.taken {stroke: var(--accent); stroke-width: 2.4;}
.bar.baseline {stroke: var(--base);}
.bar.given-up {stroke-width: 1; stroke-dasharray: 2 3;}
.point circle, .point rect {stroke: var(--paper); stroke-width: 1.5; fill: var(--other);}
.point.taken circle {fill: var(--accent);}
.point.baseline rect {fill: var(--base);}
.point.given-up circle {fill: var(--paper); stroke: var(--other);}
.leader {stroke: var(--quiet); stroke-width: .8;}
svg .label {paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round;}
svg .label.taken {fill: var(--accent); font-weight: 700;}
svg .label.given-up {fill: var(--quiet);}
.key {display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin: 0 .3em 0 0;
  background: var(--other);}
.key.taken {background: var(--accent);}
.key.baseline {background: var(--base); border-radius: 0;}
.key.given-up {background: none; border: 1.5px solid var(--other);}
.key.front {background: var(--front); height: .2em; width: 1.2em; border-radius: 0; vertical-align: middle;
  opacity: 1;}
figcaption p {margin: .4rem 0 0;}
.keys span {white-space: nowrap; margin-right: 1.2em;}
"""

EXAMPLES = """
article {border-left: 3px solid var(--line); padding: .1rem 0 .1rem 1.25rem; margin: 0 0 2rem;}
article.won {border-left-color: var(--accent);}
article.lost {border-left-color: var(--base);}
article h3 {font: 500 1.2rem/1.4 ui-serif, "Iowan Old Style", Charter, Georgia, serif; margin: 0 0 .35rem;}
article details {border: 0; margin: .25rem 0 0; font-size: .875rem;}
article summary {padding: .25rem 0;}
.ranks {display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0 0 .6rem; font-size: .875rem;}
.ranks div {display: flex; gap: .4rem;}
.ranks dt {font-size: inherit;}
.ranks dd {font-weight: 600;}
blockquote {margin: 0; max-width: 44rem; font-size: .9375rem;}
blockquote p {margin: 0; white-space: pre-line;}
mark {background: var(--mark); color: var(--ink); border-radius: .2rem; padding: .05em .12em;}
.source {color: var(--quiet); font-size: .875rem;}
"""

SMALL = """
@media (max-width: 46rem) {
  body {font-size: 16px;}
  main {padding: 2.5rem 1rem 4rem;}
  h2 {margin-top: 3rem;}
  .facts {grid-template-columns: 1fr 1fr;}
  .facts div, .facts div + div {padding: .8rem .8rem .8rem 0;}
  .facts div:nth-child(even) {padding-left: .9rem;}
  table.systems, .systems tbody, .systems tr, .systems th, .systems td {display: block; width: auto;}
  .systems caption {display: block;}
  .systems thead {position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);}
  .systems tr {display: grid; grid-template-columns: 1.9rem 1fr; border-bottom: 1px solid var(--line);
    padding: .8rem 0; column-gap: 0;}
  .systems th, .systems td {border: 0; padding: 0; text-align: left;}
  .systems td:first-child {grid-row: 1;}
  .systems td:nth-child(n+3) {grid-column: 2; display: flex; justify-content: space-between; gap: 1rem;
    font-size: .875rem;}
  .systems td:nth-child(n+3)::before {content: attr(data-label); color: var(--quiet); white-space: normal;}
  .systems td span {text-align: right;}
  table.narrow {width: 100%; min-width: 0;}
  svg.wide, span.wide {display: none;}
  svg.narrow {display: block;}
  span.narrow {display: inline;}
}
@media print {
  main {padding: 0; max-width: none;}
  article, tr, figure {break-inside: avoid;}
}
"""
