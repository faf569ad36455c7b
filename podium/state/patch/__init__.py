"""RFC 6902 patches of plain documents: applying, composing and finding them. It knows no tracked container."""
