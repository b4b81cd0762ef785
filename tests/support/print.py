"""What a figure must be to be printed."""

from typing import Any


def check_print(figure: Any) -> None:
    """Fail unless a figure is a page wide, no letter below 7 points, no title cut, no pixel, no legend on lines."""
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == 7.0
    assert figure.get_size_inches()[1] <= 9.0
    for text in figure.findobj(Text):
        words, size = text.get_text(), text.get_fontsize()
        exponents = "^" in words.replace(r"\^", "")
        assert not words or size * (0.7 if exponents else 1.0) >= 7.0, (words, size)
    for axes in figure.axes:
        for words in (axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title):
            place = words.get_window_extent()
            cut = place.width and (place.x0 < 0 or place.x1 > figure.bbox.width or place.y1 > figure.bbox.height)
            assert not cut, words.get_text()
        assert _lines_under_legend(axes) == []
    assert figure.findobj(AxesImage) == []
    assert not any(artist.get_rasterized() for artist in figure.findobj())


def _lines_under_legend(axes: Any) -> list[str]:
    """Return the names of the lines in a panel that run through its legend."""
    if axes.get_legend() is None:
        return []
    place = axes.get_legend().get_window_extent()
    drawn = ((line, line.get_transform().transform_path(line.get_path()).interpolated(50)) for line in axes.lines)
    return [line.get_label() for line, path in drawn if place.count_contains(path.vertices)]
