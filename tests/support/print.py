"""What a figure must be to be printed."""

from typing import Any


def check_print(figure: Any) -> None:
    """Fail unless a figure is as wide as a page, has no letter below 7 points, and consists of lines and areas."""
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == 7.0
    assert figure.get_size_inches()[1] <= 9.0
    for text in figure.findobj(Text):
        words, size = text.get_text(), text.get_fontsize()
        exponents = "^" in words.replace(r"\^", "")
        assert not words or size * (0.7 if exponents else 1.0) >= 7.0, (words, size)
    assert figure.findobj(AxesImage) == []
    assert not any(artist.get_rasterized() for artist in figure.findobj())
