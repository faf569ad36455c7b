"""Packs, the objects that hold blobs: their format, the catalog of the blobs' places, readers and writers.

`pack_store` combines them to a `chronicle.blobs.port.BlobStore`.
"""
