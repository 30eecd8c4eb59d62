"""Times, sizes and tables in words."""


def size_name(size):
    for unit, scale in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size} B"


def microseconds(point):
    if point is None:
        return ""
    return f"{point['us']:.2f}" if point["us"] < 10 else f"{point['us']:.1f}"


def with_spread(point):
    if point is None or "p10" not in point or point["us"] <= 0:
        return microseconds(point)
    apart = max(point["p90"] - point["us"], point["us"] - point["p10"]) / point["us"]
    return f"{microseconds(point)} ±{max(1, round(100 * apart))} %"


def grid(head, rows):
    return ["| " + " | ".join(head) + " |", "|---:" * len(head) + "|"] + ["| " + " | ".join(row) + " |" for row in rows]


def without_empty(head, rows):
    """A table without the columns that have nothing in any row."""
    kept = [column for column in range(len(head)) if any(row[column] for row in rows)]
    return grid([head[column] for column in kept], [[row[column] for column in kept] for row in rows])


def bold(text):
    return f"**{text}**" if text else ""


def listed(names):
    """a, b and c"""
    names = list(names)
    return " and ".join([", ".join(names[:-1])] * bool(names[:-1]) + names[-1:])
