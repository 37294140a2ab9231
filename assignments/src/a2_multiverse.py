# %% [raw]
# # ASSIGNMENT CONFIG
# init_cell: false
# check_all_cell: false
# export_cell: false
# solutions_pdf: false

# %% [markdown]
# # Assignment 2: orthogonal heads and their pruning
#
# You write the parts of Maximal Multiverse Learning (MML): many classifier heads on one vector, a loss that makes them
# orthogonal, and a rule that drops the worse ones during training. Then you train heads on the vectors of a real encoder.
#
# | | |
# |---|---|
# | Work | about {hours} hours, {points} points |
# | Hand in | {deadline} |
# | Hardware | a CPU is enough; the experiment in part 4 takes one to two minutes on two cores |
# | Read before | notebooks 03 (The multiverse loss) and 04 (Pruning heads); for question 10, notebook 05 |
# | Papers | Malkiel and Wolf 2021 (MML), section 3 and Algorithm 1; Comaniciu and Meer 2002 (MeanShift) |
#
# {rules}
#
# | questions | allowed | not allowed |
# |---|---|---|
# | all | numpy, torch and your own functions | mmlkit, transformers |
# | 1, 2, 3 | what autograd can follow, because the check compares gradients | numpy, `detach` |
# | 4 | | autograd, such as `backward` and `torch.autograd` |
# | 6, 7, 8 | | scikit-learn |
#
# Letters: B sentences in a batch, D numbers in the vector of a sentence, C labels, M heads. A of the M heads are active;
# the others were dropped. `active` is a bool tensor [M], True for an active head. If `weight` has the shape [M, C, D],
# then `weight[active]` has the shape [A, C, D], and the active heads keep their order.

# %%
{setup}

# %%
import torch
from torch import nn
from torch.nn import functional as F

# %% [markdown]
# # Part 1: many heads and their losses

# %% [raw]
# # BEGIN QUESTION
# name: head_logits

# %% [markdown]
# ## Question 1: the heads
#
# {facts}
#
# Every head is a linear classifier on the same vector. The logits of head j for the vector $x$ are $F_j\,x + b_j$.
# IF vote=logits
# The model answers with the softmax, over the labels, of the *mean of the active heads' logits* (Eq. 5 of the paper).
# END IF
# IF vote=probabilities
# In this course the model answers with the *mean of the active heads' probabilities*; the probabilities of a head are the
# softmax, over the labels, of its logits. (Eq. 5 of the paper, and question 9, average the logits.)
# END IF
#
# `x` has the shape [B, D], `weight` [M, C, D], `bias` [M, C] and `active` [M]. `weight[j]` is $F_j$. Return two tensors: the
# logits of the active heads [B, A, C], and the model's probabilities [B, C]. Compute the logits of all active heads
# in one product, without a loop over heads. `torch.einsum` may help. Part 4 computes gradients through the logits,
# and the check asks for them in both tensors, so do not convert to numpy and do not detach. It can happen that only one head
# is active.

# %% [raw]
# # BEGIN SOLUTION

# %%
def head_logits(x, weight, bias, active):
    """Return (logits of the active heads [B, A, C], probabilities [B, C])."""
    # BEGIN SOLUTION
    logits = torch.einsum("bd,acd->bac", x, weight[active]) + bias[active]
    # IF vote=logits
    return logits, logits.mean(dim=1).softmax(dim=-1)
    # END IF
    # IF vote=probabilities
    return logits, logits.softmax(dim=-1).mean(dim=1)
    # END IF
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("head_logits", head_logits)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: task_losses

# %% [markdown]
# ## Question 2: the task loss
#
# {facts}
#
# Every head has a loss of its own: the mean over the sentences of its cross-entropy. The task loss is the *sum* of these
# losses over the heads (Eq. 3):
#
# $$L_j = \frac1B \sum_{i=1}^{B} -\log \text{softmax}(z_{ij})_{y_i} \qquad\qquad L_\text{task} = \sum_j L_j$$
#
# $z_{ij}$ are the logits of sentence i in head j, and $y_i$ is the label of sentence i. The paper prints Eq. 3 without the
# softmax and with the label's number as a factor. Both are misprints.
#
# `logits` has the shape [B, A, C], and `labels` has the shape [B]. Return $L_\text{task}$, a tensor with one number from
# which autograd can compute gradients, and the losses of the heads, a tensor [A]. You may use `F.cross_entropy`.

# %% [raw]
# # BEGIN SOLUTION

# %%
def task_losses(logits, labels):
    """Return (the task loss, the losses of the heads [A])."""
    # BEGIN SOLUTION
    labels = labels[:, None].expand(-1, logits.shape[1])
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(dim=0)
    return losses.sum(), losses
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("task_losses", task_losses)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 2: the multiverse loss

# %% [raw]
# # BEGIN QUESTION
# name: multiverse_loss

# %% [markdown]
# ## Question 3: the multiverse loss
#
# {facts}
#
# The vector $f_{rk}$ is row k of $F_r$: the weights of head r for label k. The multiverse loss compares the vectors of
# two heads for the same label. It does not compare different labels, and it does not use the biases (Eq. 4).
#
# IF similarity=dot
# The similarity of two heads is their dot product, $\text{sim}(f, g) = \langle f, g\rangle$.
# END IF
# IF similarity=cosine
# In this course the similarity of two heads is their cosine,
# $\text{sim}(f, g) = \langle f, g\rangle / (|f|\,|g|)$.
# END IF
# IF pairs=unordered
# Every pair of heads counts once:
#
# $$L_\text{mv} = \sum_{k} \sum_{r<s} \big|\text{sim}(f_{rk}, f_{sk})\big|$$
# END IF
# IF pairs=ordered
# In this course the sum runs over all ordered pairs, so every two heads count twice:
#
# $$L_\text{mv} = \sum_{k} \sum_{r \neq s} \big|\text{sim}(f_{rk}, f_{sk})\big|$$
# END IF
#
# `weight` has the shape [A, C, D]: it holds active heads only. Return a tensor with one number, from which autograd can
# compute the gradient. Do not loop over pairs.
# All similarities of a label are the entries of one matrix [A, A], the *Gram matrix*, which is one product. Remember that
# its diagonal compares every head with itself. With one head there is no pair, so the loss is 0.

# %% [raw]
# # BEGIN SOLUTION

# %%
def multiverse_loss(weight):
    """Return the multiverse loss of the heads, a tensor with one number."""
    # BEGIN SOLUTION
    rows = weight.transpose(0, 1)
    # IF similarity=cosine
    rows = rows / rows.norm(dim=-1, keepdim=True)
    # END IF
    G = (rows @ rows.transpose(1, 2)).abs()
    # IF pairs=unordered
    return G.triu(diagonal=1).sum()
    # END IF
    # IF pairs=ordered
    return G.sum() - G.diagonal(dim1=1, dim2=2).sum()
    # END IF
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("multiverse_loss", multiverse_loss)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: multiverse_gradient

# %% [markdown]
# ## Question 4: its gradient
#
# {facts}
#
# Compute the gradient of the loss of question 3 with respect to `weight`. Derive the formula yourself. An answer that
# uses autograd, such as `backward` or `torch.autograd`, has no points, also where a helper uses it. The same holds for
# finite differences. Assume that no similarity is exactly 0.
#
# A head occurs in many pairs, so its gradient is a sum over the other heads.
# IF similarity=cosine
# First find the gradient with respect to the unit vectors $f_r / |f_r|$. The length $|f_r|$ also depends on $f_r$.
# END IF
# Think about the factor: how often does a pair occur in the loss, and to how many heads does it give a gradient? Return a
# tensor of the shape of `weight`, [A, C, D]. With one head the gradient is 0.

# %% [raw]
# # BEGIN SOLUTION

# %%
def multiverse_gradient(weight):
    """Return the gradient of the multiverse loss, [A, C, D]."""
    # BEGIN SOLUTION
    rows = weight.transpose(0, 1)
    # IF similarity=cosine
    lengths = rows.norm(dim=-1, keepdim=True)
    rows = rows / lengths
    # END IF
    signs = (rows @ rows.transpose(1, 2)).sign() * (1 - torch.eye(len(weight)))
    gradient = signs @ rows
    # IF pairs=ordered
    gradient = 2 * gradient
    # END IF
    # IF similarity=cosine
    gradient = (gradient - (gradient * rows).sum(dim=-1, keepdim=True) * rows) / lengths
    # END IF
    return gradient.transpose(0, 1)
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("multiverse_gradient", multiverse_gradient)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# Compare your gradient with the one that autograd finds. The difference should be about as small as rounding, 1e-6.

# %%
# Try it: the grader skips this cell.
if check.done("multiverse_loss", "multiverse_gradient"):
    weight = torch.randn(6, 2, 10, requires_grad=True)
    multiverse_loss(weight).backward()
    difference = (weight.grad - multiverse_gradient(weight.detach())).abs().max()
    print(f"largest difference: {difference:.0e}")

# %% [markdown]
# # Part 3: pruning

# %% [raw]
# # BEGIN QUESTION
# name: update_averages

# %% [markdown]
# ## Question 5: the moving averages
#
# {facts}
#
# The pruning judges a head by the moving average $a_j$ of its losses. All averages start at 0. After every step of the
# training, every *active* head moves its average towards $L_j$, its own loss in this step:
#
# $$a_j \leftarrow \gamma\, a_j + (1-\gamma)\, L_j \qquad\qquad \hat a_j = \frac{a_j}{1-\gamma^t}$$
#
# The average of a dropped head stays as it is. $t$ is the number of the step, counted from 1. The second formula is not in
# the paper. It corrects the bias from the initial value 0. Apply it to all heads: the $\hat a_j$ of a dropped head
# uses the current t too. Algorithm 1 of the paper is misprinted in two places: it gives the weight $\gamma$ to the new loss, and it uses
# the loss of the whole model for every head.
#
# `averages` [M] holds the $a_j$ after t − 1 steps. `losses` [A] holds the losses of the active heads, in their order.
# Both are float64. `active` has the shape [M]; `t` and `gamma` are numbers. Return the new $a_j$ [M] and the
# $\hat a_j$ [M], two float64 tensors. Do not change the argument `averages` itself.

# %% [raw]
# # BEGIN SOLUTION

# %%
def update_averages(averages, losses, active, t, gamma):
    """Return (the new averages [M], the corrected averages [M])."""
    # BEGIN SOLUTION
    averages = averages.clone()
    averages[active] = gamma * averages[active] + (1 - gamma) * losses
    return averages, averages / (1 - gamma**t)
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("update_averages", update_averages)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: mean_shift

# %% [markdown]
# ## Question 6: MeanShift, the windows
#
# {facts}
#
# MeanShift finds groups of values. It puts a window on every value and moves each window to where the values are dense.
# Write it for values that are plain numbers:
#
# 1. For every value there is one window. It starts at the value.
# 2. A window at the place $x$ contains all values $v$ with $|v - x| \le h$. The number $h$ is the *bandwidth*.
# 3. A move puts every window at the mean of the values that it contains. The values themselves never move.
# 4. Repeat the moves until no window changes its place. (This takes few moves. Stop after 300 in any case.)
#
# Compare exactly, with `<=` and `==`, also in question 7. No check has a distance that equals the bandwidth up to rounding.
# A window is never empty, as it contains the value at which it started or values near it.
#
# `values` is a float64 tensor [N], and `bandwidth` is a number above 0. Return the final places of the windows, a tensor
# [N] in the order of the values.

# %% [raw]
# # BEGIN SOLUTION

# %%
def mean_shift(values, bandwidth):
    """Return the place where the window of each value stands still, [N]."""
    # BEGIN SOLUTION
    places = values
    for _ in range(300):
        inside = (abs(places[:, None] - values) <= bandwidth).double()
        moved = (inside * values).sum(dim=1) / inside.sum(dim=1)
        if torch.equal(moved, places):
            break
        places = moved
    return places
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("mean_shift", mean_shift)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: merge

# %% [markdown]
# ## Question 7: MeanShift, the clusters
#
# {facts}
#
# Windows of one group may stand still at different places close together. Therefore some places are chosen as *centres*:
#
# 1. The count of a place is the number of values (not of places) at a distance of at most the bandwidth from it.
# 2. Go through the places in the order of their counts, the largest count first.
# IF ties=higher
#    Of two places with equal counts, the *higher* one (the larger number) comes first.
# END IF
# IF ties=lower
#    Of two places with equal counts, the *lower* one (the smaller number) comes first.
# END IF
# 3. A place becomes a centre if its distance from every centre chosen before is larger than the bandwidth.
# 4. Every value belongs to the centre that is nearest to the *value*. Of two equally near centres, take the one that was
#    chosen first.
#
# `values` [N] and `places` [N] are float64 tensors; `places` comes from question 6. `bandwidth` is a number. Return a tensor
# [N] that holds, for every value, the centre to which it belongs. All values of one cluster then have the same entry.

# %% [raw]
# # BEGIN SOLUTION

# %%
def merge(values, places, bandwidth):
    """Return the centre of each value's cluster, [N]."""
    # BEGIN SOLUTION
    counts = (abs(places[:, None] - values) <= bandwidth).sum(dim=1).tolist()
    # IF ties=higher
    order = sorted(zip(counts, places.tolist()), reverse=True)
    # END IF
    # IF ties=lower
    order = sorted(zip(counts, places.tolist()), key=lambda pair: (-pair[0], pair[1]))
    # END IF
    centres = []
    for _, place in order:
        if all(abs(place - centre) > bandwidth for centre in centres):
            centres.append(place)
    centres = torch.tensor(centres, dtype=torch.float64)
    return centres[abs(values[:, None] - centres).argmin(dim=1)]
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("merge", merge)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: prune

# %% [markdown]
# ## Question 8: which heads stay
#
# {facts}
#
# From time to time the training drops heads. It judges them by the corrected averages $\hat a_j$ of question 5:
#
# IF gate=at_least
# 1. If *fewer than* `threshold` heads are active, nothing changes.
# END IF
# IF gate=more_than
# 1. If `threshold` heads *or fewer* are active, nothing changes.
# END IF
# 2. If the averages of the active heads are all equal, nothing changes. Compare the averages themselves: the standard
#    deviation of equal numbers may be about 1e-17 and not 0.
# 3. Otherwise the averages of the active heads are clustered with your functions of questions 6 and 7. The bandwidth is
#    `scale` times the standard deviation of the active heads' averages. (This standard deviation divides by A:
#    `correction=0`.)
# 4. The heads in the cluster with the lowest centre stay active. All other heads are dropped. If there is only one
#    cluster, all its heads stay. This is common: in the experiment, many runs end with all 64 heads.
#
# A dropped head never comes back. The check calls your own `mean_shift` and `merge`, so answer questions 6 and 7 first.
#
# `averages` is a float64 tensor [M] with the corrected averages, `active` is a bool tensor [M], and `scale` and
# `threshold` are numbers. Return the new mask, a bool tensor [M]. Do not change the argument `active` itself.

# %% [raw]
# # BEGIN SOLUTION

# %%
def prune(averages, active, scale, threshold):
    """Return the mask of the heads that stay active, bool [M]."""
    # BEGIN SOLUTION
    chosen = averages[active]
    # IF gate=at_least
    if len(chosen) < threshold or chosen.min() == chosen.max():
        return active
    # END IF
    # IF gate=more_than
    if len(chosen) <= threshold or chosen.min() == chosen.max():
        return active
    # END IF
    bandwidth = scale * chosen.std(correction=0).item()
    centres = merge(chosen, mean_shift(chosen, bandwidth), bandwidth)
    stays = active.clone()
    stays[active] = centres == centres.min()
    return stays
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("prune", prune)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 4: one layer, and a comparison

# %% [raw]
# # BEGIN QUESTION
# name: collapse

# %% [markdown]
# ## Question 9: the collapse
#
# {facts}
#
# A mean of linear maps is a linear map. So after the training, the active heads can be replaced by *one* linear layer that
# gives the mean of their logits. Return it as a new `nn.Linear` with a bias and the dtype of `weight`.
# `weight` has the shape [M, C, D], `bias` [M, C] and `active` [M].

# %% [raw]
# # BEGIN SOLUTION

# %%
def collapse(weight, bias, active):
    """Return an nn.Linear from D to C with the mean logits of the active heads."""
    # BEGIN SOLUTION
    C, D = weight.shape[1:]
    layer = nn.Linear(D, C, dtype=weight.dtype)
    layer.load_state_dict({"weight": weight[active].mean(dim=0), "bias": bias[active].mean(dim=0)})
    return layer
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("collapse", collapse)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: improvements

# %% [markdown]
# ## Question 10: the relative improvement
#
# {facts}
#
# The paper compares a method with a baseline on data sets that neither was trained on. For every such set it divides the
# accuracy of the method by the accuracy of the baseline. The *relative improvement* is the mean of these ratios, minus 1,
# in percent.
#
# `ours` and `baseline` are tensors [R, S] with accuracies above 0: row r belongs to one trained model, and column s to one
# data set. `own` is a tensor [R] of whole numbers: model r was trained on the set `own[r]`, and this column does not
# count in row r. Return the improvements of the R models, [R]. Do not round.

# %% [raw]
# # BEGIN SOLUTION

# %%
def improvements(ours, baseline, own):
    """Return the relative improvement of every model in percent, [R]."""
    # BEGIN SOLUTION
    ratios = ours / baseline
    total = ratios.sum(dim=1) - ratios[torch.arange(len(own)), own]
    return 100 * (total / (ratios.shape[1] - 1) - 1)
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("improvements", improvements)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# ## The experiment: copies or orthogonal heads
#
# Your functions now train heads on real sentences. MiniLM, a small BERT with pretrained weights, stays frozen: it gives
# every sentence one vector, the mean of its token vectors. The labels are negative (0) and positive (1). The heads are
# trained on rows of the set `sst2`, and tested on 240 other rows of it. They are also tested on two sets that they were not
# trained on: `sst`, whose five labels are reduced to two (the neutral rows are left out), and `cfimdb`. The mini sets
# share no sentence, unlike the real SST and SST-2. Texts are cut after 40 tokens. The reviews of `cfimdb` are longer, so
# only their beginnings are used.
#
# The first cell loads MiniLM, and the second one computes the vectors. That takes about a minute.

# %%
# Experiment: the grader skips this cell.
from mmlkit import load_pretrained, load_task

encoder, tokenizer = load_pretrained("minilm", device="cpu")


@torch.no_grad()
def vectors(texts, size=32, length=40):
    found = []
    for i in range(0, len(texts), size):
        ids = tokenizer([row[0] for row in texts[i : i + size]], padding=True, truncation=True,
                        max_length=length, return_tensors="pt")
        mask = ids.attention_mask[:, :, None]
        h = encoder.eval()(ids.input_ids, ids.attention_mask).last_hidden_state
        found.append((h * mask).sum(dim=1) / mask.sum(dim=1))
    return torch.cat(found)

# %%
# Experiment: the grader skips this cell.
def load(name):
    data = load_task(name).train
    x, y = vectors(data.texts), torch.tensor(data.labels)
    if name == "sst":
        x, y = x[y != 2], (y[y != 2] > 2).long()
    return x, y


sets = {name: load(name) for name in ("sst2", "sst", "cfimdb")}
x, y = sets["sst2"]
train_rows, dev_rows = check.split(len(x), dev=240)
sets["sst2"], train_x, train_y = (x[dev_rows], y[dev_rows]), x[train_rows], y[train_rows]
print({name: list(x.shape) for name, (x, y) in sets.items()})

# %% [markdown]
# The next three cells define the training of M heads, which takes 300 steps. Heads may be dropped after the steps 100, 200
# and 300. `lam` is the paper's $\lambda$, the weight of the multiverse loss. Your gradient of question 4 is added to the
# gradient of the task loss. The paper has $\lambda$ = 0.005 with 1,024 heads and dot products.
# IF similarity=dot
# Here 64 heads have 0.05.
# END IF
# IF similarity=cosine
# Here 64 heads have 0.005 with cosines. With 0.05 the gradient of the cosines would hide that of the task loss, because the
# vectors are short at first.
# END IF
#
# `alike` is measured just before the first pruning. It is the absolute cosine between the vectors of two heads for the
# same label, averaged over the labels and the pairs of heads. It is 1 for copies, 0 for orthogonal heads, and nan for a
# single head. At the random initialisation of 64 heads it is about 0.04.

# %%
# Experiment: the grader skips this cell.
def start(M, seed):
    torch.manual_seed(seed)
    weight = (0.02 * torch.randn(M, 2, train_x.shape[1])).requires_grad_()
    bias = torch.zeros(M, 2, requires_grad=True)
    return weight, bias, torch.optim.Adam([weight, bias], lr=2e-3)


def mean_cosine(weight):
    rows = F.normalize(weight.detach(), dim=-1).transpose(0, 1)
    r, s = torch.triu_indices(len(weight), len(weight), offset=1)
    return (rows @ rows.transpose(1, 2))[:, r, s].abs().mean().item()

# %%
# Experiment: the grader skips this cell.
def step(weight, bias, optimizer, active, lam):
    rows = torch.randint(len(train_x), (64,))
    logits, _ = head_logits(train_x[rows], weight, bias, active)
    loss, losses = task_losses(logits, train_y[rows])
    optimizer.zero_grad()
    loss.backward()
    weight.grad[active] += lam * multiverse_gradient(weight.detach()[active])
    optimizer.step()
    return losses.detach().double()

# %%
# Experiment: the grader skips this cell.
def train_heads(M, lam, scale=1.0, steps=300, every=100, gamma=0.95, seed=0):
    weight, bias, optimizer = start(M, seed)
    active, averages = torch.ones(M, dtype=torch.bool), torch.zeros(M, dtype=torch.float64)
    for t in range(1, steps + 1):
        losses = step(weight, bias, optimizer, active, lam)
        averages, corrected = update_averages(averages, losses, active, t, gamma)
        if t == every:
            alike = mean_cosine(weight)
        if t % every == 0:
            active = prune(corrected, active, scale, threshold=5)
    return weight.detach(), bias.detach(), active, alike

# %% [markdown]
# The last two cells of the experiment train three models with three seeds each: one head; 64 heads without the multiverse
# loss; and 64 heads with it. Every model is collapsed into one linear layer, which gives the accuracies. `improvement` is
# the relative improvement of question 10 over the model with one head and the same seed. The three accuracies of a line
# are those on `sst2`, `sst` and `cfimdb`, in this order.
#
# The two models with 64 heads share their initialisation and their batches. The model with one head sees other batches, even with
# the same seed. In several runs no head is dropped.

# %%
# Experiment: the grader skips this cell.
def run(name, M, lam, seed, baseline=None):
    weight, bias, active, alike = train_heads(M, lam, seed=seed)
    layer = collapse(weight, bias, active)
    found = torch.tensor([[(layer(x).argmax(-1) == y).float().mean() for x, y in sets.values()]])
    baseline = found if baseline is None else baseline
    better = float(improvements(found, baseline, torch.tensor([0]))[0])
    print(f"{name:16} seed {seed}: {int(active.sum()):2} heads left, alike {alike:.3f}, accuracies",
          *(f"{one:.3f}" for one in found[0]), f"improvement {better:+.1f} %")
    return found

# %%
# Experiment: the grader skips this cell.
# IF similarity=dot
lam = 0.05
# END IF
# IF similarity=cosine
lam = 0.005
# END IF
needed = ("head_logits", "task_losses", "multiverse_gradient", "update_averages", "mean_shift",
          "merge", "prune", "collapse", "improvements")
if check.done(*needed):
    for seed in range(3):
        one = run("one head", 1, 0, seed)
        run("64, lambda 0", 64, 0, seed, baseline=one)
        run(f"64, lambda {lam}", 64, lam, seed, baseline=one)

# %% [raw]
# # BEGIN QUESTION
# name: written
# manual: true

# %% [markdown]
# ## Question 11: the results of the heads
#
# {facts}
#
# Write at most 250 words, in full sentences:
#
# 1. Compare `alike` of the 64 heads without and with the multiverse loss. Why do heads with the same data and without this
#    loss become alike?
# 2. Which differences of the accuracies on `sst2` are larger than chance explains? The standard error of an accuracy p on
#    n rows is $\sqrt{p(1-p)/n}$. Call a difference large if it is more than $2\sqrt2$ standard errors and has the same
#    sign for all three seeds. All models and seeds share the same 240 rows: why does that make this bound too strict? What
#    does the standard error cover, and what does the spread over the three seeds cover?
# 3. The heads that are left collapse into one linear layer on a *frozen* encoder. The multiverse loss may change the vectors
#    of the sentences, the linear layer and which heads are dropped. Which of these can it change here, and which where the
#    encoder is trained too?
# 4. Suppose that question 5 used the loss of the whole model for every head, as Algorithm 1 is printed. What would your
#    `prune` then do? Can the printed Algorithm 1 drop a head at all?

# %% [raw]
# # BEGIN SOLUTION

# %% [markdown]
# **Answer to written:** Without the multiverse loss all heads minimise the same convex loss on the same batches, so their weights move towards
# the same solution, and the mean cosine is high. With it the mean cosine is 0.1 or less. The
# standard error $\sqrt{p(1-p)/n}$ is at most 0.033 here. It covers the choice of the 240 test rows. The spread over the
# seeds covers the initialisation and the batches, but not the choice of the rows, which all seeds share. A difference between two
# models that is smaller than $2\sqrt2$ standard errors, or that changes its sign between the seeds, is not evidence. The bound
# is too strict because both models err on many of the same rows, so their accuracies vary together; a
# paired comparison on the same rows is sharper. The vectors are fixed, so the multiverse loss can only change which heads are dropped and which linear layer is found: it acts as a
# regulariser. Where the encoder is trained, it also changes the vectors, which must serve heads that look in different
# directions. If every head averages the loss of the whole model, all averages are equal. Then `prune`
# changes nothing (its step 2), so the printed Algorithm 1 would never drop a head.

# %% [raw]
# # END SOLUTION

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: extension
# manual: true

# %% [markdown]
# ## Question 12: a small project of your own
#
# {facts}
#
# Change *one* thing in the experiment and find out what it does. For example: $\lambda$; the number of heads; the bandwidth
# (`scale` from 0.3 to 1.5) and the number of heads that are left; or the number of training rows.
# IF similarity=dot
# Another change is cosines instead of dot products.
# END IF
# IF similarity=cosine
# Another change is dot products instead of cosines.
# END IF
# The experiment uses only the gradient of the multiverse loss. So a project with another loss has to give it the gradient
# of this loss; autograd is allowed there. You may also train MiniLM's last layer together with the heads. Your own idea
# is welcome.
#
# Report in this order, on at most one page:
#
# 1. the question;
# 2. your prediction before the run;
# 3. what you changed and what you kept;
# 4. a table with the mean and the spread over at least three seeds;
# 5. the answer;
# 6. a result that would change it.
#
# A result that contradicts your prediction is worth the same points. Add your code in cells below. Begin every cell of
# your project with the line `# Experiment: the grader skips this cell.`

# %% [raw]
# # BEGIN SOLUTION

# %% [markdown]
# **Answer to extension:** One possible report varies `scale` and counts the heads that are left, with three seeds each.

# %% [raw]
# # END SOLUTION

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Hand in
#
# 1. Run the notebook from top to bottom (Runtime, Run all) and read the summary below.
# 2. Download it: on Colab with File, Download, Download .ipynb; in Jupyter it already lies in your folder.
# 3. {file} The grader reads only this file.

# %%
# Summary: the grader skips this cell.
check.summary()
