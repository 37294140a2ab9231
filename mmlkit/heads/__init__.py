"""The heads on the encoder: each turns hidden states into logits and computes its own loss.

    linear       one linear layer, for a packed input or for two sentence vectors
    multiverse   many orthogonal linear heads and the multiverse loss
    clustering   MeanShift over the average losses of heads
    pruning      which heads survive: the cluster with the lowest average losses
    san          the stochastic answer network of MT-DNN
    ranking      relevance ranking of MT-DNN

Notebooks 02, 03, 04, 07 and 08 build them by hand. Loops over data do not belong here.
"""

from mmlkit.heads.clustering import cluster
from mmlkit.heads.linear import (
    LinearHead,
    Loss,
    PairHead,
    data_loss,
    pair_features,
    sentence_vector,
)
from mmlkit.heads.multiverse import MultiverseHead, multiverse_loss
from mmlkit.heads.pruning import HeadPruner, PruningEvent
from mmlkit.heads.ranking import RankingHead, rank_queries, ranking_loss
from mmlkit.heads.san import SANHead, SANSteps, kept_steps, mean_of_steps
