"""Several services of one home: which of them serves it, and who still ends turns. Begin at `handover`."""
