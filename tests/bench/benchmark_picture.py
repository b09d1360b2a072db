"""Draws accuracy over bytes of the neutral benchmark, `specs/benchmark/bytes.svg`:

    fl study specs/studies/benchmark.yaml --no-runs --out DIR
    python tests/bench/benchmark_picture.py < DIR/benchmark.csv > specs/benchmark/bytes.svg

A panel is a split, and a point a method: its common model, or else the mean of its clients' models.
Dashed lines are training in one place and each client alone. A method without a run has no point.
"""

import csv
import html
import math
import sys

PANELS = [("mnist-dirichlet-0.5", "MNIST, Dirichlet 0.5"),
          ("mnist-dirichlet-0.1", "MNIST, Dirichlet 0.1"),
          ("mnist-one-class", "MNIST, one class a client"),
          ("fashion-dirichlet-0.5", "Fashion-MNIST, Dirichlet 0.5"),
          ("fashion-dirichlet-0.1", "Fashion-MNIST, Dirichlet 0.1")]
WIDTH, HEIGHT, LEFT, TOP, GAP, BELOW = 400, 360, 46, 30, 60, 60
ACROSS = 3  # panels in a line
LEGEND = [("common", "common model, %"),
          ("clients", "mean of the clients' models, % (methods without a common one)")]
LEAST, MOST = -1.2, 3.8  # ends of the bytes' axis, powers of ten of a MB
LETTER = 5.9  # mean width of a label's letter
STYLE = """text{font:12px sans-serif;fill:#1c1e21}.tick{fill:#5b6168}.grid{stroke:#dcdfe3}
.lead{stroke:#9aa0a6}.frame{stroke:#5b6168;stroke-dasharray:4 3}.label{font-size:11px}
.common{stroke:#0072b2;fill:#0072b2}.clients{stroke:#d55e00;fill:#fff;stroke-width:2}"""


def read(file):
    """Of each table: the means of each row by measure."""
    tables = {}
    for cell in csv.DictReader(file):
        if cell["mean"]:
            row = tables.setdefault(cell["table"], {}).setdefault(html.escape(cell["row"]), {})
            row[cell["measure"]] = float(cell["mean"])
    return tables


def text(x, y, words, anchor="start", kind="label"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def line(kind, x1, y1, x2, y2):
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def point(kind, x, y, about):
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{about}</title></circle>'


def box(x, y, words, anchor):
    """Left, top, right and bottom of a label."""
    left = x - LETTER * len(words) * {"start": 0, "middle": 0.5, "end": 1}[anchor]
    return left, y - 9, left + LETTER * len(words), y + 2


def place(x, y, words, taken, left):
    """Where a label covers least, and of those the nearest to its point; and how far that is."""
    def covers(at):
        a, b, c, d = box(*at[0])
        outside = a < left or c > left + WIDTH or b < TOP or d > TOP + HEIGHT
        return 99 * outside + sum(a < r and c > l and b < low and d > t for l, t, r, low in taken)

    sides = (9, 4, "start"), (-9, 4, "end"), (0, -9, "middle"), (0, 17, "middle")
    return min([((x + dx, y + dy + way * far, words, anchor), far) for far in range(0, 99, 11)
                for dx, dy, anchor in sides for way in (1, -1)], key=covers)


def panel(title, rows):
    left = LEFT
    accuracy = lambda row: row.get("accuracy", row.get("clients.accuracy"))
    lowest = int(max(0, (min(map(accuracy, rows.values())) - 4) // 10 * 10))
    right, middle, bottom = left + WIDTH, left + WIDTH / 2, TOP + HEIGHT
    across = lambda mb: left + (math.log10(mb) - LEAST) / (MOST - LEAST) * WIDTH
    up = lambda percent: bottom - (percent - lowest) / (100 - lowest) * HEIGHT
    yield text(middle, 18, title, "middle", "title")
    yield text(middle, bottom + 34, "MB up and down, all clients, whole run", "middle", "tick")
    for percent in range(lowest, 101, 10):
        yield line("grid", left, up(percent), right, up(percent))
        yield text(left - 6, up(percent) + 4, f"{percent}", "end", "tick")
    for mb in (0.1, 1, 10, 100, 1000):
        yield line("grid", across(mb), TOP, across(mb), bottom)
        yield text(across(mb), bottom + 16, f"{mb}", "middle", "tick")
    taken, points = [], []
    for name, row in rows.items():
        mb, y = row["bytes.up"] + row["bytes.down"], up(accuracy(row))
        if mb == 0:
            label = right - 4, y - 4, f"{name} {accuracy(row):.1f}", "end"
            yield line("frame", left, y, right, y) + text(*label)
            taken += [(left, y - 1, right, y + 1), box(*label)]
        else:
            x, kind = across(mb), "common" if "accuracy" in row else "clients"
            points.append((y, x, name, kind, f"{name}: {accuracy(row):.1f} %, {mb:.2f} MB"))
            taken.append((x - 5, y - 5, x + 5, y + 5))
    for y, x, name, kind, about in sorted(points):
        label, far = place(x, y, name, taken, left)
        start, top, end, low = box(*label)
        taken.append((start, top, end, low))
        if far:
            yield line("lead", x, y, min(max(x, start), end), min(max(y, top), low))
        yield text(*label) + point(kind, x, y, about)


if __name__ == "__main__":
    tables = read(sys.stdin)
    lines = -(-len(PANELS) // ACROSS)
    width, height = LEFT + ACROSS * (WIDTH + GAP) - GAP + 16, lines * (TOP + HEIGHT + BELOW)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
          f' viewBox="0 0 {width} {height}" style="background:#fff"><style>{STYLE}</style>')
    place_of = lambda n: (n % ACROSS * (WIDTH + GAP), n // ACROSS * (TOP + HEIGHT + BELOW))
    for number, (table, title) in enumerate(PANELS):
        print('<g transform="translate({} {})">'.format(*place_of(number)))
        print(*panel(title, tables[table]), "</g>", sep="\n")
    x, y = place_of(len(PANELS))
    for line_of, (kind, words) in enumerate(LEGEND):
        below = y + TOP + 18 * line_of
        print(point(kind, x + LEFT + 6, below - 4, words) + text(x + LEFT + 16, below, words))
    print("</svg>")
