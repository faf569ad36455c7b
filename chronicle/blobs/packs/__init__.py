"""Packs, the objects that hold blobs: their format, the catalog of where each blob lies, reading and writing them.

`pack_store` is the `chronicle.blobs.port.BlobStore` made of these parts.
"""
