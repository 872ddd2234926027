"""Token corpora for NumPy and JAX, and for mixtures; `millrace.torch.Tokens` is the same for PyTorch.

    from millrace.tokens import Tokens

    wiki = Tokens("/data/wiki", 2048, samples="packed")     # Megatron's wiki.bin and wiki.idx
    wiki.read([0, 7, 1])                                    # a batch: a dict of numpy arrays

paths    a path or several: Megatron prefixes (or the .idx or .bin), llm.c's .bin, .npy of one dimension, plain numbers
         without a header, MDS folders of MosaicML Streaming, JSON lines, a column of Parquet. Found by what is there;
         `format` names it ("megatron", "llmc", "npy", "bin", "mds", "jsonl", "parquet")
length   tokens of a sample ("fixed", "packed")
samples  "fixed": `length` tokens cut from the stream of a file, each `step` behind the one before; "documents": whole
         ones; "packed": sequences filled with documents
targets  with the tokens one later
dtype    of plain numbers ("uint16"), and of columns of bytes (MDS, Parquet); with a header it must be the header's
window   packed: documents that are packed together; drop_tails leaves out the rests of documents longer than `length`;
         pad: the token of padding
eos      of files without documents (plain, .npy, llm.c): documents end behind this token; else each file is one
column   MDS, JSON lines, Parquet: who has the tokens, if not "tokens" or "input_ids"

Packed batches have segment_ids, position_ids, cu_seqlens and max_seqlen for attention kernels that keep documents
apart.
See doc/guides/tokens.md.
"""

from ._corpus import IGNORED, Corpus, collate
from .mixtures import Mixture, Source, Stream

__all__ = ["IGNORED", "Mixture", "Source", "Stream", "Tokens", "collate"]


class Tokens(Corpus):
    """A token corpus; see the module's text."""
