# %% [markdown]
# # 03 The maximal multiverse loss
#
# **Hundreds of classifier heads learn one task. Do they become copies of each other, and what does it cost to keep them apart?** A term of the
# loss keeps their weight vectors close to orthogonal. You will write this loss in two ways, measure what the term does during fine-tuning,
# and fold all heads into one linear layer.
#
# | | |
# |---|---|
# | time | 2 hours to read and solve (estimated) · fast: 4 min on two CPU cores · colab: 10 min on one GPU (estimated) · paper: some hours on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [02 Fine-tuning](02_finetuning.ipynb) |
# | papers | Malkiel and Wolf 2021 (MML; "v1" is its first arXiv version, "v2" the EACL one), section 3 · Littwin and Wolf 2016 |

# %% [markdown]
# ## You will be able to
#
# - explain why orthogonal heads need other text vectors than a single head does,
# - write the multiverse loss as a double loop and as one matrix product, with its gradient,
# - measure how similar heads are, and in how many directions the text vectors vary,
# - say what the weight of the term changes, and what it does not,
# - fold hundreds of trained heads into a single linear layer.
#
# ![The encoder turns a text into one vector x, the input of M heads. Their losses are summed. For each class a triangular table
# holds the absolute dot products of all pairs of heads; lambda times their sum is added to the total.](images/03_heads.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
task = "sst2"  # any classification task
source = None  # a folder with the task's files; None: what the profile says
epochs = 1

# %% tags=["bootstrap"]
# @title Set-up: installs this release where the library is missing, as on Colab
try:
    import mmlkit
except ImportError:
    home = "https://github.com/mmlkit/mmlkit"
    release = f"mmlkit[notebooks,minilm] @ {home}/archive/refs/tags/v0.2.0.zip"
    get_ipython().run_line_magic("pip", f'install -q "{release}"')
    import mmlkit
from mmlcourse import open_notebook

open_notebook("03", profile, output_dir)

# %% tags=["effect", "setup"]
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from mmlcourse.lessons import checks, plots

# %% tags=["effect", "setup"]
from mmlcourse.lessons.profiles import get_profile
from mmlcourse.machine import describe
from mmlkit.runtime import fastest_precision, pick_device

size, device, versions = get_profile(profile), pick_device(), describe()["versions"]
source = source or size.source
precision = fastest_precision(device) if size.precision == "auto" else size.precision
print(f"mmlkit {mmlkit.__version__}, torch {versions['torch']} on {device} in {precision}")
print(f"weights {size.model}, data {task} from {source}, {epochs} epoch(s) per method")

# %% tags=["setup"]
from mmlcourse.lessons.answers import folded
from mmlcourse.lessons.plots import sliders

# %% [markdown]
# ## 1 Why many orthogonal heads?
#
# A classifier on BERT is one linear head with a weight vector for each class. The logit of a class is the dot product of its
# weight vector with the text's vector $x$, plus a bias. The training loss can be small when one direction of $x$ separates the
# classes.
#
# Now $M$ heads learn the same task, and their weight vectors for a class must be *orthogonal*. Suppose that a head has one weight
# vector, and that the sign of its logit is the predicted class. Each head then uses a different component of $x$, so all heads
# classify well only if each of the $M$ components separates the classes on its own.
#
# Littwin and Wolf (2016) name a second consequence. If two heads give the same logit for every text, then $\langle f_1 - f_2, x\rangle$ is
# constant (0 without biases): the vectors $x$ do not vary along $f_1 - f_2$. So $M$ linearly independent heads with equal
# logits leave $M - 1$ directions without variation.
#
# *More* components and *fewer* directions do not contradict each other. A vector along $f_1 + \dots + f_M$ has
# the same component along every head, although it lies in a single direction. Four heads and three texts show both:

# %%
toy_heads = torch.eye(4)  # four orthogonal heads of one class
toy_texts = torch.tensor([[1.0], [-1.0], [2.0]]) * toy_heads.sum(0)  # along f_1 + ... + f_4
print("logits, one row per text:", (toy_texts @ toy_heads.T).tolist())
used = [int(torch.linalg.matrix_rank(vectors)) for vectors in (toy_heads, toy_texts)]
print(f"directions that the heads use: {used[0]}; directions that the texts use: {used[1]}")

# %% [markdown]
# Littwin and Wolf trained up to seven such heads on images and called them a *multiverse*. Malkiel and Wolf (2021) take as many
# heads as the vector has components, on BERT, and prune the heads with the highest losses (the
# [next notebook](04_pruning_heads.ipynb)).
#
# ## 2 Two heads in the plane
#
# Two heads of one class are two vectors, $f_1 = (1, 0.2)$ and $f_2 = (0.9, 0.5)$. Their dot product is $0.9 + 0.1 = 1$. The
# derivative of $|\langle f_1, f_2\rangle|$ with respect to $f_1$ is $f_2$, times the sign of the product. While the product is
# positive, a step of gradient descent subtracts a part of $f_2$ from $f_1$, and a part of $f_1$ from $f_2$.

# %%
start = torch.tensor([[1.0, 0.2], [0.9, 0.5]], dtype=torch.float64)
f1, f2 = start
after1, after2 = f1 - 0.1 * f2, f2 - 0.1 * f1
print("after one step of 0.1:", after1.numpy().round(2), after2.numpy().round(2))
print(f"the product falls from {f1 @ f2:.2f} to {after1 @ after2:.2f}")

# %% [markdown]
# **Predict before you run.** After 400 smaller steps, will the two vectors have turned away from each other, become shorter, or both?


# %%
def dot(F):
    """|<f_1, f_2>| of two heads, the rows of F."""
    return (F[0] @ F[1]).abs()


def descend(loss, steps, lr=0.01, F=start):
    """Plain gradient descent on the heads; returns every position, [steps + 1, 2, 2]."""
    path = [F]
    for _ in range(steps):
        F = path[-1].clone().requires_grad_()
        path.append(F.detach() - lr * torch.autograd.grad(loss(F), F)[0])
    return torch.stack(path)


# %%
def angle_and_length(F):
    """Degrees between the two heads, and the mean of their lengths."""
    cosine = torch.nn.functional.cosine_similarity(F[0], F[1], dim=0)
    return torch.rad2deg(cosine.clamp(-1, 1).arccos()).item(), F.norm(dim=1).mean().item()


turning = descend(dot, steps=400)
degrees, lengths = zip(*map(angle_and_length, turning))

# %% tags=["answer"]
with folded():
    plots.head_paths({"400 steps on |⟨f₁, f₂⟩|": turning})
    plt.show()
    print(f"Both: the angle goes from {degrees[0]:.0f} to {degrees[-1]:.0f} degrees, and the mean")
    print(f"length from {lengths[0]:.2f} to {lengths[-1]:.2f}. Pale lines: the start.")

# %% [markdown]
# At first each step multiplies the sum $f_1 + f_2$ by $0.99$ and the difference $f_1 - f_2$ by $1.01$. The product is
# $\langle f_1, f_2\rangle = \tfrac14(|f_1+f_2|^2 - |f_1-f_2|^2)$, so it is 0 when sum and difference are equally long. From then on
# its sign changes in every step, and the vectors stay close to a right angle.
#
# The product also falls when the vectors become shorter, whereas the *cosine* does not depend on the lengths, so only turning reduces it. The
# paper uses the product. The cosine is an option of the library, `multiverse_loss(weight, similarity="cosine")`.


# %%
def cosine(F):
    """|cos| of the angle between two heads."""
    return torch.nn.functional.cosine_similarity(F[0], F[1], dim=0).abs()


for name, loss in {"product": dot, "cosine": cosine}.items():
    angle, length = angle_and_length(descend(loss, steps=400)[-1])
    print(f"{name}: angle {angle:.1f}°, mean length {length:.2f}")
    assert angle > 85

# %% [markdown]
# ### With data
#
# Forty points have labels $y = \pm 1$. Each of the two coordinates is the label plus noise. A head is one vector $f$, and its loss is
# the mean of $\log(1 + e^{-y\langle f, x\rangle})$ over the points. Two heads are trained twice: on the data alone, and with
# $0.3\,|\langle f_1, f_2\rangle|$ added to the loss.
#
# **Predict before you run.** Where do the two heads end with the data alone? And with the second term?

# %%
signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(20)
noise = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
points = signs[:, None] * torch.tensor([1.0, 1.0]) + 0.7 * noise


def data_loss(F):
    """The loss of both heads, summed."""
    return torch.nn.functional.softplus(-signs[:, None] * (points @ F.T)).mean(0).sum()


two_ways = {
    "data alone": descend(data_loss, steps=1500),
    "data + 0.3 |⟨f₁, f₂⟩|": descend(lambda F: data_loss(F) + 0.3 * dot(F), steps=1500),
}

# %% tags=["answer"]
with folded():
    plots.head_paths(two_ways, points, signs)
    plt.show()
    for name, way in two_ways.items():
        angle = angle_and_length(way[-1])[0]
        print(f"{name}: angle {angle:.0f}°, loss per head {data_loss(way[-1]) / 2:.3f}")
    assert angle > 70

# %% [markdown]
# With data alone the two heads become almost equal, since both minimise the same convex loss. The second term makes
# them orthogonal, but the loss per head rises, because each head uses one coordinate only. The points are fixed here. An encoder
# can *move* the vectors $x$, so that each coordinate alone separates the classes better.
#
# ### A third head
#
# **Predict before you run.** Three heads in two dimensions cannot all be orthogonal. How small can the sum of $|\cos|$ over the three pairs
# become?
#
# <details><summary>Answer</summary>
#
# It can become 1: two heads are orthogonal, and the third one is parallel to one of them.
#
# </details>
#
# So at most $D$ heads can be orthogonal in $D$ dimensions, and the paper starts with $M = D$.
#
# ## 3 From the equations to code
#
# These are the paper's equations, numbered as in v2. The text's vector is $x$ (in the paper $d_i$):
#
# $$C_j(x) = x^\top F^j + b_j \quad (2) \qquad\qquad
# L_\text{task} = \sum_j \beta_j\, \frac1B \sum_i -\log \mathrm{softmax}\big(C_j(x_i)\big)_{y_i} \quad (3)$$
# $$L_\text{mv} = \sum_k \sum_{r<s} \big|\langle f^r_k, f^s_k\rangle\big|\, \beta_r \beta_s \quad (4) \qquad\qquad
# \hat y = \frac{\sum_j \beta_j\, C_j(x)}{\sum_j \beta_j} \quad (5) \qquad\qquad L = L_\text{task} + \lambda L_\text{mv}$$
#
# | symbol | name | shape |
# |---|---|---|
# | $x$, $y$ | vectors of the $B$ texts in a batch, and their labels | `[B, D]`, `[B]` |
# | $C_j(x)$, $\hat y$ | logits of head $j$ for $C$ classes; mean of the active heads' logits | `[B, C]` |
# | $F^j$, $b_j$ | weights and bias of head $j$; stacked, with classes before features | `F [M, C, D]`, `b [M, C]` |
# | $f^j_k$ | weight vector of head $j$ for class $k$: a row of the stack | `[D]` |
# | $\beta_j$ | 1: head $j$ is active; 0: pruned. Here all are active | `[M]` |
# | $\lambda$ | weight of the orthogonality term, 0.005 in the paper | number |
#
# <details><summary>Five misprints of the paper, corrected above</summary>
#
# | where | printed | effect | corrected |
# |---|---|---|---|
# | Eq. 3 | $y_i \log (C_j(x_i)_{y_i})$ | takes the log of a *logit*; the number of the class becomes a factor | log softmax |
# | Eq. 3, regression | the minus stays when squared error replaces the log | makes the error as large as possible | plus |
# | Algorithm 1 | sums over samples inside a mean over samples | a larger batch weighs more against $\lambda$ | one mean |
# | v1, Eq. 8 | $f^r_j$ is the $r$-th column of head $C_j$ | compares the *classes* of one head | v2: the $j$-th column of head $C_r$ |
# | Algorithm 1 | $\alpha = 2 \cdot e^{-5}$ | read literally, a learning rate of 0.013 | $2 \cdot 10^{-5}$ |
#
# </details>
#
# A stack of heads is one tensor, and Eq. 2 for all heads is one product. The sizes are small and the precision is double. Eq. 3 takes one line
# more:

# %%
M, C, D, B = 48, 2, 64, 8
generator = torch.Generator().manual_seed(0)
shapes = (M, C, D), (M, C), (B, D)
F, bias, x = (torch.randn(*s, dtype=torch.float64, generator=generator) for s in shapes)
logits = torch.einsum("bd,mcd->bmc", x, F) + bias
print("F", list(F.shape), " x", list(x.shape), " logits", list(logits.shape))


def task_loss(logits, labels):
    """Eq. 3: logits [B,M,C], labels [B]; the mean over the batch, summed over the heads."""
    chosen = logits.log_softmax(-1)[torch.arange(len(labels)), :, labels]  # [B,M]
    return -chosen.mean(0).sum()


# %% [markdown]
# Eq. 4 as it is written, pair by pair:


# %%
def multiverse_by_loop(F):
    """Eq. 4 as a double loop over heads, for every class."""
    M, C, D = F.shape
    return sum((F[r, k] @ F[s, k]).abs() for k in range(C) for s in range(M) for r in range(s))


print(f"{multiverse_by_loop(F):.6f} from {C * M * (M - 1) // 2:,} dot products")

# %% [markdown]
# Let $F_k$ `[M, D]` hold the vectors of class $k$, one head per row. All their dot products are the entries of one matrix,
# $G = F_k F_k^\top$, the *Gram matrix*. Its diagonal holds $|f|^2$, which Eq. 4 does not count. Every pair appears twice, above and
# below the diagonal.


# %%
def multiverse_by_gram(F):
    """Eq. 4 from one matrix product per class."""
    rows = F.transpose(0, 1)  # [C,M,D]
    G = (rows @ rows.transpose(1, 2)).abs()  # [C,M,M]
    return (G.sum() - G.diagonal(dim1=1, dim2=2).sum()) / 2


difference = (multiverse_by_loop(F) - multiverse_by_gram(F)).abs() / multiverse_by_gram(F)
assert difference < 1e-12
print(f"relative difference {difference:.0e}, Gram matrices [{C}, {M}, {M}]")

# %% [markdown]
# **The gradient** needs no automatic differentiation. The derivative of $|\langle f_r, f_s\rangle|$ with respect to $f_r$ is
# $\mathrm{sign}(G_{rs})\, f_s$. The sum over all $s \neq r$ is row $r$ of $\mathrm{sign}(G)\,F_k$, where the diagonal of
# $\mathrm{sign}(G)$ is set to 0.
#
# **Predict before you run.** Each pair counts once in the loss, but appears twice in $G$. Does the gradient need a factor ½?

# %%
rows = F.transpose(0, 1)
sign = (rows @ rows.transpose(1, 2)).sign() - torch.eye(M, dtype=torch.float64)  # no diagonal
gradient = (sign @ rows).transpose(0, 1)  # [M,C,D]
weight = F.clone().requires_grad_()
multiverse_by_gram(weight).backward()

# %% tags=["answer"]
with folded():
    torch.testing.assert_close(gradient, weight.grad, rtol=1e-12, atol=1e-12)
    ratio = weight.grad.norm() / gradient.norm()
    print(
        f"No: autograd's gradient is {ratio:.3f} times sign(G) F. The pair (r, s) adds one vector"
    )
    print("to the gradient of head r and one to that of head s.")

# %% [markdown]
# This gradient does not become small near orthogonality; only its sign changes. So gradient descent oscillates around 0, as in section 2.
#
# **Checkpoint.** The library has the same term, the same mean of all heads (Eq. 5) and the same penalty $\lambda L_\text{mv}$.

# %%
from mmlkit.heads import MultiverseHead, multiverse_loss

library_weight = F.clone().requires_grad_()
multiverse_loss(library_weight).backward()
torch.testing.assert_close(library_weight.grad, weight.grad, rtol=1e-12, atol=1e-12)
library = MultiverseHead(D, C, num_heads=M, orthogonality_weight=0.005).double().eval()
library.weight.data, library.bias.data = F.clone(), bias.clone()
torch.testing.assert_close(library(x), logits.mean(1))  # Eq. 5
torch.testing.assert_close(library.penalty(), 0.005 * multiverse_by_gram(F))
print(f"lambda L_mv {library.penalty():.3f}, y_hat {list(library(x).shape)}: equal")

# %% [markdown]
# From here on we import the loss and the head.
#
# ### Sum or mean?
#
# Eq. 3 *sums* over the heads. With a mean, the same $\lambda$ would have another effect.
#
# **Predict before you run.** The gradients of $L_\text{task}$ and $\lambda L_\text{mv}$ with respect to 1,024 new heads are compared. Which one
# is larger with the sum, and which one with the mean?


# %%
def gradient_norms(head, x, labels):
    """The norms of the gradients of L_task and of lambda L_mv with respect to the heads."""
    terms = task_loss(head.eval().all_logits(x), labels), head.penalty()
    return [torch.autograd.grad(term, head.weight)[0].norm().item() for term in terms]


large = MultiverseHead(1024, 2, num_heads=1024)
random_x = torch.randn(32, 1024, generator=generator)
of_task, of_mv = gradient_norms(large, random_x, torch.arange(32) % 2)

# %% tags=["answer"]
with folded():
    for name, divisor in (("sum", 1), ("mean", 1024)):
        print(f"{name:>4}: L_task {of_task / divisor:.3g}, lambda L_mv {of_mv:.3g}")
    print("With the sum the task loss dominates, with the mean the term does.")

# %% [markdown]
# The library takes the sum. A mean has the same balance if $\lambda$ is divided by the number of heads.
#
# ## 4 Do heads drift together?
#
# Two methods train the same encoder with $M = D$ heads: `bert-ensemble` with $\lambda = 0$, and `mv-m` with $\lambda = 0.02$. Everything else is
# equal: initial heads, batches, updates and learning rates. SST-2 asks whether a sentence about a film is positive or negative.
#
# Training is one epoch with batches of 16. So that one epoch shows the effect, the learning rate of the heads is five times the profile's, and
# $\lambda$ is four times the paper's 0.005.

# %% tags=["effect"]
from mmlcourse.studies import build_head
from mmlkit.bert import load_pretrained
from mmlkit.data import load_task
from mmlkit.training import MultitaskModel, fit

limit = 20_000 if profile == "colab" else size.limit  # 67,000 rows would take 19,000 updates
data = load_task(task, source, limit=limit, seed=seed)
assert data.task.kind == "classification", f"{task} is a regression; here correct labels count."
print(f"{len(data.train)} train, {len(data.dev)} dev, labels {list(data.task.labels)}")
print({column: data.train[0][column] for column in (*data.task.text_columns, "label")})


# %% tags=["effect"]
def new_model(method, lam=0.02):
    """The checkpoint's encoder, and the method's heads drawn from the seed; nothing is pruned."""
    encoder, _ = load_pretrained(size.model)
    torch.manual_seed(seed)
    shape = encoder.config.hidden_size, data.task.num_labels
    head, _ = build_head(method, *shape, orthogonality_weight=lam, pooling=size.pooling)
    return MultitaskModel(encoder, {data.task.name: head}).to(device)


def cosines(weight):
    """|cos| of all pairs r < s of every class, [C, M(M-1)/2]."""
    rows = torch.nn.functional.normalize(weight.detach(), dim=-1).transpose(0, 1)
    r, s = torch.triu_indices(len(weight), len(weight), offset=1)
    return (rows @ rows.transpose(1, 2))[:, r, s].abs()


# %% [markdown]
# **Checkpoint.** On a real batch, the library's task loss is Eq. 3:

# %%
from mmlkit.data import collate, encode, plan

untrained = new_model("mv-m").eval()
first_rows = encode(untrained.tokenizer, data.train, max_length=size.max_length)
batch = collate(first_rows, range(8)).to(device)
out = untrained.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
new_heads = untrained.head(data.task)
by_hand = task_loss(new_heads.all_logits(*new_heads.inputs(out, batch)), batch.labels)
torch.testing.assert_close(untrained.loss(batch).total, by_hand, rtol=1e-3, atol=0)
print(f"{new_heads.num_heads} heads, L_task {by_hand.item():.2f}: equal")

# %% [markdown]
# `fit` calls a *hook* after every update. This hook records $|\cos|$ over all pairs of heads after every fifth update: the mean, and
# the quantiles at 10 and 90 %.


# %% tags=["effect"]
class Similarity:
    """A hook of `fit`: after every fifth update, (update, mean |cos|, 10 % and 90 % quantile)."""

    def __init__(self, head):
        self.head, self.path = head, []
        self.record(0)

    def record(self, step):
        values = cosines(self.head.weight).flatten().cpu().numpy()
        self.path.append([step, *map(float, [values.mean(), *np.quantile(values, [0.1, 0.9])])])

    def after_step(self, event):
        if event.step % 5 == 0:
            self.record(event.step)

    def state_dict(self):  # `fit` keeps it in its checkpoints
        return {"path": self.path}

    def load_state_dict(self, state):
        self.path = state["path"]


# %% [markdown]
# Random directions in $D$ dimensions have a mean $|\cos|$ near $\sqrt{2/(\pi D)}$, the *random level*. The heads start there.
#
# **Predict before you run.** After the training, will the mean $|\cos|$ of the ensemble be below, near or far above the random level?
# And that of `mv-m`?

# %% tags=["effect"]
settings = dict(epochs=epochs, batch_size=16, max_length=size.max_length, lr=size.lr)
settings |= dict(head_lr=5e-3, precision=precision, seed=seed)
models, histories, paths = {}, {}, {}
for method in ("bert-ensemble", "mv-m"):
    models[method] = new_model(method)
    hook = Similarity(models[method].head(data.task))
    kept = size.checkpoints(output_dir, f"03-{method}")  # for a long run after a disconnect
    histories[method] = fit(models[method], data, hooks=[hook], **settings, **kept)
    paths[method] = np.array(hook.path)

# %% tags=["effect"]
random_level = (2 / np.pi / models["mv-m"].encoder.config.hidden_size) ** 0.5
without, with_term = paths["bert-ensemble"][:, 1], paths["mv-m"][:, 1]
effects = {
    "mean |cos| without the term minus with it": without[-1] - with_term[-1],
    "rise of mean |cos| without the term": without[-1] - without[0],
}
effects = {claim: float(value) for claim, value in effects.items()}

# %% tags=["answer"]
with folded():
    plots.drift(paths, random_level, title=f"{task}: heads of one class")
    plt.show()
    for name, way in paths.items():
        print(f"{name}: mean |cos| {way[0, 1]:.3f} at the start and {way[-1, 1]:.3f} at the end")
    print(f"The random level is {random_level:.3f}. Each band holds the middle 80 % of pairs.")
    assert all(value > 0 for value in effects.values())

# %% [markdown]
# So the heads drift together without the term, although the task loss never compares two heads. At the initialisation all heads
# predict nearly the same probabilities, so their gradients are nearly equal. Each update then adds nearly the same vector to all
# heads: this common part grows, and the cosines grow with it.
#
# With the term, the gradient $\mathrm{sign}(G)\,F$ is added. For a head whose dot products are mostly positive, it is close to the
# sum of the other heads. So a step of gradient descent subtracts a multiple of the common part.
#
# ## 5 What the term changes inside
#
# `fit` leaves each model with the weights of its best epoch. This section needs one vector per row from each encoder, `[N, D]` for
# $N$ rows.

# %% tags=["effect"]
from mmlkit.data import collate, encode, plan
from mmlkit.training.fast import fast_matmul


@torch.no_grad()
def vectors(model, split):
    """x [N,D]: the inputs of the heads for each row, in row order."""
    encoded = encode(model.tokenizer, split, max_length=size.max_length)
    head = model.eval().head(data.task)
    x = torch.empty(len(split), model.encoder.config.hidden_size)
    with fast_matmul(device):
        for chosen in plan(encoded.lengths, 64):
            batch = collate(encoded, chosen).to(device)
            out = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            x[chosen] = head.inputs(out, batch)[0].float().cpu()
    return x


# %% tags=["effect"]
train_x = {name: vectors(models[name], data.train) for name in paths}

# %%
trained_heads = {method: model.head(data.task).cpu() for method, model in models.items()}
pair = torch.stack([trained_heads[method].weight[:24, -1] for method in paths], dim=1)
plots.head_similarity(pair, list(paths), limit=paths["bert-ensemble"][-1, 3])
plt.show()

# %% [markdown]
# *Absolute cosines of 24 heads for the last class, the paper's Fig. 1. Without the term (left) nearly all pairs have a large $|\cos|$, with the
# term (right) a small one.*
#
# ### In how many directions does x vary?
#
# By section 1, orthogonal heads with equal logits leave directions of $x$ without variation. We centre the training vectors, take their
# singular values $\sigma_i$, and summarise them by the *effective rank* $\exp(-\sum_i p_i \log p_i)$ with $p_i = \sigma_i / \sum_j \sigma_j$
# (Roy and Vetterli 2007): $n$ equal values give $n$.
#
# **Predict before you run.** Is the effective rank of `mv-m` lower or higher than that of the ensemble?


# %% tags=["effect"]
def spectrum(x):
    """Singular values of the centred vectors, largest first."""
    return torch.linalg.svdvals(x.double() - x.double().mean(0))


def ranks(values):
    """(effective rank, how many values hold 99 % of the variance)."""
    p, variance = values / values.sum(), values.square().cumsum(0) / values.square().sum()
    return torch.special.entr(p).sum().exp().item(), int((variance < 0.99).sum()) + 1


print("three equal values and a zero:", ranks(torch.tensor([3.0, 3.0, 3.0, 0.0])))

# %% tags=["effect"]
both = [ranks(spectrum(train_x[name]))[0] for name in ("mv-m", "bert-ensemble")]
measured = {"effective rank, mv-m against bert-ensemble, %": 100 * (both[0] / both[1] - 1)}

# %% tags=["answer"]
from mmlcourse.studies import recorded_effects

with folded():
    print(f"effective rank: mv-m {both[0]:.1f}, bert-ensemble {both[1]:.1f}", end="; ")
    print(f"the term changes it by {100 * (both[0] / both[1] - 1):+.0f} %.")
    for one in recorded_effects("03", kind="measured").itertuples():
        print(
            f"{one.seeds} other seeds: {one.mean:+.0f} ± {one.standard_error:.0f} %, lower with",
            end=" ",
        )
        print(f"{one.seeds - one.positive} of {one.seeds}.")

# %% [markdown]
# ### Does the mean of the heads predict better than one head?
#
# Each head alone is a classifier. *Agreement* is the share of (head, row) pairs with the same predicted class as Eq. 5.
#
# **Predict before you run.** In which of the two methods do the single heads agree more?

# %%
dev_x = {name: vectors(models[name].to(device), data.dev) for name in paths}
dev_y, single = torch.as_tensor(data.dev.labels), {}
for method, head in trained_heads.items():
    with torch.no_grad():
        head_logits = head.cpu().eval().all_logits(dev_x[method])  # [N,M,C]
    predicted, by_mean = head_logits.argmax(-1), head_logits.mean(1).argmax(-1)
    correct = (predicted == dev_y[:, None]).float().mean(0)  # [M]
    numbers = [correct.min(), correct.mean(), correct.max(), (by_mean == dev_y).float().mean()]
    single[method] = [*map(float, numbers), (predicted == by_mean[:, None]).float().mean().item()]

# %% tags=["answer"]
with folded():
    print("Dev accuracy of single heads, of their mean, and their agreement:")
    columns = ["worst", "mean", "best", "Eq. 5", "agreement"]
    display(pd.DataFrame(single, index=columns).T.round(3))

# %% [markdown]
# Where the agreement is near 1, the heads predict the same classes, so averaging them changes almost nothing. Orthogonal weight vectors do not
# prevent this, because the encoder can move $x$ so that many components carry the label.
#
# ## 6 The weight of lambda
#
# With a frozen encoder many values of $\lambda$ can be tried in seconds, because the vectors of the checkpoint are fixed and only the
# heads learn. Each update uses all training rows (at most 2,000) without dropout.
#
# **Predict before you run.** A larger $\lambda$ makes the heads more orthogonal. What happens to their training loss?


# %%
def train_heads(lam, *, lr=2e-3, steps=60):
    """Adam on the heads alone; rows of (mean |cos|, loss per head)."""
    torch.manual_seed(seed)
    shape = frozen_x.shape[1], data.task.num_labels
    way, (head, _) = [], build_head("mv-m", *shape, orthogonality_weight=lam)
    optimizer = torch.optim.Adam(head.eval().parameters(), lr=lr)
    for step in range(steps + 1):
        loss = task_loss(head.all_logits(frozen_x), train_y)
        if step % 5 == 0:
            way.append((cosines(head.weight).mean().item(), loss.item() / head.num_heads))
        optimizer.zero_grad()
        (loss + (head.penalty() or 0)).backward()
        optimizer.step()
    return way


# %%
frozen_x = vectors(untrained, data.train)[:2000]
train_y = torch.as_tensor(data.train.labels)[:2000]
lambdas = [0, 0.0005, 0.005, 0.05, 0.5]  # 0.005 is the paper's
with fast_matmul(torch.device("cpu")):
    ways = {lam: train_heads(lam) for lam in lambdas}


def price(lam):
    """Where every lambda ends, and the path of the chosen one."""
    plots.trade_off(ways, lam)


# %% tags=["answer"]
with folded():
    for lam, way in ways.items():
        print(f"λ = {lam:g}: mean |cos| {way[-1][0]:.2f}, loss per head {way[-1][1]:.3f}")
    print(f"It rises: guessing has the loss {np.log(data.task.num_labels):.3f}.")
    assert ways[0.05][-1][0] < ways[0][-1][0] and ways[0][-1][1] < ways[0.05][-1][1]

# %%
sliders(price, start={"lam": 0.005}, lam=lambdas)

# %% [markdown]
# *Runs with a larger $\lambda$ end further left (more orthogonal) and higher (a larger loss). Each dot is the end of a run, and the line is
# the path of the $\lambda$ that the slider chooses.*
#
# The frozen encoder cannot adapt $x$ to orthogonal heads, so orthogonality has its price in the training loss. In section 4 the encoder
# could adapt.
#
# ## 7 The collapse
#
# Eq. 5 uses all active heads for inference. But the mean of linear maps is a linear map. With all heads active:
#
# $$\frac1M \sum_j \big(x^\top F^j + b_j\big) = x^\top \Big(\frac1M \sum_j F^j\Big) + \frac1M \sum_j b_j$$
#
# So it is enough to average the *weights* once. In double precision the results differ by rounding errors only:

# %%
import copy

stack = copy.deepcopy(trained_heads["mv-m"]).double().eval()
linear = torch.nn.Linear(stack.hidden_size, stack.num_labels).double()
linear.weight.data, linear.bias.data = stack.weight.data.mean(0), stack.bias.data.mean(0)
with torch.no_grad():
    vectors_64 = dev_x["mv-m"].double()
    eq5, collapsed = stack.all_logits(vectors_64).mean(1), linear(vectors_64)
assert (collapsed - eq5).abs().max() / eq5.abs().max() < 1e-6
assert torch.equal(linear.weight, stack.collapse().weight)
print(f"{stack.weight.numel():,} weights in training, {linear.weight.numel():,} at inference")

# %% [markdown]
# So inference costs no additional parameters and no additional time. (A mean of *probabilities* could not be folded, since the softmax
# is not linear.) `model.collapse()` does this for a whole model, which is then saved, loaded and used like any other classifier.
#
# ## 8 Result: what does the term do?

# %%
from mmlcourse.studies import effects_by_seed

seeds = effects_by_seed("03", effects)
plots.seeds(seeds, xlabel="difference of the mean |cos|")
plt.show()
assert not size.effects or (seeds > 0).all(axis=None)

# %% [markdown]
# *Without the term the mean $|\cos|$ rises by about a half with every seed, and the term prevents nearly all of this rise.*
#
# Does it help the accuracy? The paper's claim is about *other* data sets: MML, which is `mv-m` with pruning, should transfer better than BERT.
# `mmlkit reproduce mml-tables` trained both on seven of our mini sets with six seeds, and evaluated each model on sets on which it was not
# trained. Their record:

# %%
from mmlcourse.studies import paired_bootstrap, recorded_protocol

elsewhere = recorded_protocol()
elsewhere = elsewhere[elsewhere["evaluated_on"] != elsewhere["trained_on"]]
if len(elsewhere):
    means = 100 * elsewhere.groupby(["method", "seed"])["accuracy"].mean()
    compared = paired_bootstrap(means["mml"], means["bert"])
    print(f"mml minus bert elsewhere: {compared.difference:+.1f} points", end=" ")
    print(f"(95 % interval {compared.low:+.1f} to {compared.high:+.1f}, {compared.pairs} seeds)")
    assert compared.low < 0 < compared.high  # the finding of the text below

# %% [markdown]
# The interval contains zero: with six seeds we see no difference of accuracy between MML and one head on mini data. Notebook
# [05](05_cross_dataset.ipynb) has real sets, where MML is not ahead either.
#
# ## Exercises
#
# ### Exercise 1: how similar are the heads?
#
# ● ○ ○ · 10 minutes
#
# Compute the mean $|\cos|$ over the pairs of heads for every class, without `cosines` of section 4. `weight` has the shape
# `[M, C, D]`, and the result has the shape `[C]`.


# %%
def my_mean_cosine(weight):
    """weight [M,C,D] to [C]: the mean of |cos(f_r, f_s)| over the pairs r < s of each class."""
    ...


_ = checks.check_mean_cosine(my_mean_cosine)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Divide each vector by its length. Then one matrix product per class contains all cosines. The $M(M-1)/2$ entries above the diagonal
# are the pairs.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# rows = torch.nn.functional.normalize(weight, dim=-1).transpose(0, 1)  # [C,M,D]
# r, s = torch.triu_indices(len(weight), len(weight), offset=1)
# return (rows @ rows.transpose(1, 2)).abs()[:, r, s].mean(1)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 2: the free directions
#
# ● ● ○ · 15 minutes
#
# `F` has the weight vectors of one class, one head per row, without biases. Some rows may be equal. All $M$ heads give the same logit for
# a text; this logit may differ from text to text. In how many linearly independent directions can $x$ still vary?


# %%
def my_free_directions(F):
    """F [M,D] to a whole number: the dimension of all x with equal <f_r, x> for every head r."""
    ...


_ = checks.check_free_directions(my_free_directions)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Equal logits mean $\langle f_r - f_1, x\rangle = 0$ for every $r$. How many of these equations are independent?
# `torch.linalg.matrix_rank` counts them.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return F.shape[1] - int(torch.linalg.matrix_rank(F[1:] - F[0]))
# ```
#
# With $M = D$ orthogonal heads, one direction is left. It is the direction of their sum if they have equal lengths.
#
# </details>

# %% [markdown]
# ### Exercise 3: change the experiment
#
# ● ○ ○ · 10 minutes
#
# Section 6 trains the heads with the learning rate 2e-3. *Predict first*: with $\lambda = 0$ and the same 60 updates, does the mean $|\cos|$
# end higher or lower if the learning rate is ten times smaller? Then call `train_heads` with `lr=` for three learning rates.

# %%
learning_rates = ...  # for example (2e-4, 2e-3, 5e-3)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Each row of the result is (mean $|\cos|$, loss per head), so `train_heads(0, lr=2e-4)[-1][0]` is the last mean $|\cos|$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# for lr in (2e-4, 2e-3, 5e-3):
#     print(lr, train_heads(0, lr=lr)[-1][0])
# ```
#
# Each update adds a common part to all heads, and its size grows with the learning rate, while the random initial part keeps its size. So the
# heads drift further with a larger learning rate.
#
# </details>

# %% tags=["answer"]
with folded("Output of the solution"):
    print([f"{lr:g}: {train_heads(0, lr=lr)[-1][0]:.3f}" for lr in (2e-4, 2e-3, 5e-3)])

# %% [markdown]
# ## If it goes wrong
#
# - *The heads are orthogonal, and their accuracy is that of the majority class*: $\lambda$ is too large for the number of heads, or the
#   task loss is a mean. Compare the two gradients as in section 3.
# - *The heads have a length near 0*: the term was reduced by shrinking instead of turning. Lower $\lambda$, or take
#   the cosine.
#
# ## Takeaways
#
# - Heads of one task become copies of each other, because they get nearly the same gradients. The orthogonality term keeps them apart.
# - On mini data with six seeds, we see no difference of accuracy between MML and one head. Notebook 12 has the real sets.
# - The term is one matrix product per class, and its gradient is another: $\mathrm{sign}(G)\,F$.
# - A sum over heads and a mean over heads differ by a factor of $M$ in the balance with $\lambda$.
# - Turning and shrinking both lower the product. Only turning lowers the cosine.
# - In all recorded seeds the term lowers the effective rank of the text vectors.
# - The average of linear heads is one linear head, so hundreds of heads in training become one at inference.
#
# ## References
#
# Malkiel and Wolf (2021), *Maximal Multiverse Learning for Promoting Cross-Task Generalization of Fine-Tuned Language Models*, EACL.
# Littwin and Wolf (2016), *The Multiverse Loss for Robust Transfer Learning*, CVPR. Roy and Vetterli (2007), *The Effective Rank: A
# Measure of Effective Dimensionality*, EUSIPCO. Socher et al. (2013), *Recursive Deep Models for Semantic Compositionality Over a
# Sentiment Treebank* (SST-2).
#
# Before: [02 Fine-tuning](02_finetuning.ipynb). Next: [04 Pruning heads](04_pruning_heads.ipynb).
