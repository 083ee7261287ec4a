"""What Pillow raises on files that are damaged, that claim to be too large, or that are no images at all."""

import struct

from PIL import Image

# It calls a broken PNG a SyntaxError. The warning is an error where warnings are.
UNREADABLE = (
    *(OSError, SyntaxError, ValueError, EOFError, struct.error, MemoryError),
    *(Image.DecompressionBombError, Image.DecompressionBombWarning),
)
