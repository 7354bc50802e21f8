"""The page's style sheet: light and dark, narrow and wide, no script."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --ink: #16202b; --muted: #566270; --line: #d5dae1;
  --good: #146c2e; --good-card: #e6f4ea; --bad: #b3261e; --bad-card: #fce8e6;
  --warn: #7a4d00; --warn-card: #fdf1dc; --link: #0b57d0;
  --series-1: #0b62b8; --series-2: #c2410c; --series-3: #0f766e; --series-4: #7e22ce;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12171d; --card: #1b222b; --ink: #e8edf3; --muted: #a3b0be; --line: #36414e;
    --good: #6fd58c; --good-card: #14301d; --bad: #ff9b90; --bad-card: #401a17;
    --warn: #f2c46d; --warn-card: #38290b; --link: #8ab8ff;
    --series-1: #6cb2ff; --series-2: #ff9d66; --series-3: #4fd1c2; --series-4: #cf9bff;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: .2rem 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1rem 0 .4rem; }
p { margin: .3rem 0; max-width: 46rem; }
a { color: var(--link); }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .85em; }
.verdict { border-radius: .6rem; padding: 1rem 1.2rem; border-left: .5rem solid; }
.verdict p, .verdict h1 { max-width: none; }
.verdict.good { background: var(--good-card); border-color: var(--good); }
.verdict.bad { background: var(--bad-card); border-color: var(--bad); }
.verdict .word { font-weight: 700; letter-spacing: .02em; }
.good .word, .is-good { color: var(--good); }
.bad .word, .is-bad { color: var(--bad); font-weight: 600; }
.is-warn { color: var(--warn); font-weight: 600; }
.small { color: var(--muted); font-size: .875rem; font-weight: 400; }
section { margin-top: 1.2rem; }
p.is-bad { font-weight: 400; max-width: none; }
.complaints li { margin: .4rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; color: var(--muted); font-size: .875rem; padding-bottom: .4rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .7rem .4rem 0; }
thead th { border-bottom: 2px solid var(--line); }
tbody tr { border-bottom: 1px solid var(--line); }
tbody th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td, .cards th, summary, figcaption, p { overflow-wrap: anywhere; }
tbody th { min-width: 6rem; }
.cards tbody th { min-width: 12rem; }
.icon { display: inline-block; width: 1.2em; font-weight: 700; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr)); }
figure { margin: 0; padding: .8rem; background: var(--card); border-radius: .6rem; min-width: 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
svg { display: block; width: 100%; height: auto; stroke-linejoin: round; stroke-linecap: butt; }
details { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: .6rem 0; }
summary:focus-visible, a:focus-visible, .scroll:focus-visible { outline: 3px solid var(--link); }
details > :not(summary) { margin-bottom: .8rem; }
figure details { border: 0; font-size: .875rem; }
figure summary { color: var(--muted); padding: .3rem 0; }
pre {
  background: var(--card); border-radius: .4rem; padding: .7rem; margin: 0 0 .8rem;
  white-space: pre-wrap; overflow-wrap: anywhere; max-height: 30rem; overflow-y: auto;
}
@media (max-width: 40rem) {
  body { padding: .7rem; }
  .cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .cards, .cards caption, .cards tbody, .cards tr, .cards th, .cards td { display: block; }
  .cards tr { padding: .5rem 0; }
  .cards th, .cards td { padding: .1rem 0; }
  .cards td > .small { display: inline; padding-left: .4rem; }
  .cards td[data-label]::before { content: attr(data-label) ": "; color: var(--muted); }
}
@media print { details::details-content { content-visibility: visible; } }
"""  # noqa: E501 - one rule, one line
