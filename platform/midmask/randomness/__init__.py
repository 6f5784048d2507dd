"""The one home of seeds, hashes and random streams; nothing else in midmask makes a generator.

    of a text       BLAKE2b, keyed by a salt          splits, samples of ids, keys of documents     `texts`
    of two numbers  SplitMix64                        which negative a query draws                  `texts`
    of a row        SplitMix64 of (seed, epoch, row)  masks, crops, guesses; a `Purpose` each       `masks`
    a stream        PCG64, or Python's, by a seed     orders of training, resamples, span lengths   `streams`
    torch's own     Mersenne twister, by a seed       fresh weights; dropout, by (seed, step, rank) `torch_seeds`

What can be a hash is one, so that it does not depend on what was drawn before, on the batch or on the worker. The
schemes stay apart because each is in artifacts that exist: one for all would change every number.
"""
