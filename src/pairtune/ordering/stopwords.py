"""The English words that say nothing about what a text is about: no shingle is made of them."""

from __future__ import annotations

# "don't" is read as "don" and "t", hence the halves at the end.
STOP_WORDS: frozenset[str] = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before being below between both but by
    can cannot could did do does doing down during each either else ever every few for from further get had has have having he
    her here hers herself him himself his how however i if in into is it its itself just let like may me might more most much
    must my myself no nor not now of off on once only or other our ours ourselves out over own per same shall she should since
    so some such than that the their theirs them themselves then there these they this those though through to too under until
    up upon us very was we were what when where whether which while who whom whose why will with within without would yet you
    your yours yourself yourselves
    d didn doesn don isn ll m re s t ve wasn won
    """.split()  # noqa: SIM905
)
