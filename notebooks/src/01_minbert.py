# %% [markdown]
# # 01 minBERT
#
# **What does BERT do with a sentence, number by number?** You write the three classes of a BERT layer, and see them stacked into BERT's
# encoder. With published weights, your encoder then gives the same numbers as the published implementation.
#
# | | |
# |---|---|
# | time | 2 hours to read and write · fast: 1 min on two CPU cores · colab, paper: some minutes, for a download of 440 MB (estimated) |
# | memory | fast: 2 GB · colab, paper: 3 GB |
# | read first | [00 Start here](00_start_here.ipynb); matrix products and the softmax |
# | papers | Vaswani et al. 2017, section 3.2 · Devlin et al. 2019, section 3 · the CS224N minBERT handout |

# %% [markdown]
# ## You will be able to
#
# - compute attention for three tokens with a pencil,
# - write multi-head attention, add-and-norm and the BERT layer as `torch.nn` modules,
# - compare your encoder with two other implementations, on trained weights,
# - account for every one of BERT-base's 109,482,240 parameters,
# - test a claim about an attention head on sentences that were not used to choose the head.
#
# ![A BERT layer from left to right. The input h enters multi-head self-attention. The result and h are added and
# normalised, which gives a. The vector a enters the feed-forward network. The result and a, not h, are added and
# normalised, which gives the output.](images/01_layer.svg)
#
# BERT's encoder is a sum of learned vectors per token, followed by twelve or twenty-four copies of this layer, each with its
# own weights. Sections 1 to 4 follow the drawing from left to right.

# %% tags=["parameters"]
profile = "fast"  # "fast": MiniLM, installed with the library; "colab", "paper": BERT-base
seed = 0
output_dir = "../runs"  # this notebook writes nothing there

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

open_notebook("01", profile, output_dir)

# %% tags=["setup"]
import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

from mmlcourse.lessons import checks, plots, profiles
from mmlcourse.lessons.answers import folded
from mmlkit import bert, runtime

settings = profiles.get_profile(profile)
torch.set_grad_enabled(False)  # this notebook trains nothing
torch.set_printoptions(precision=3, sci_mode=False)
pd.options.display.max_colwidth = None
print(f"mmlkit {mmlkit.__version__}, weights {settings.model}, torch {torch.__version__}")

# %% [markdown]
# ## 1 Attention on three tokens
#
# Take the words *the river bank*. A bank can hold money, but next to *river* it does not. Attention mixes a part of the vector of
# *river* into the vector of *bank*. Each token has a made-up vector here, so that everything
# fits on paper: *the* (0, 1), *river* (2, 0), *bank* (1, 1).
#
# **Step 1, scores.** The dot product of two vectors measures how well two tokens match. For *bank* and *river* it is
# $1 \cdot 2 + 1 \cdot 0 = 2$.
#
# **Predict before you run.** The table has a row for each token that looks and a column for each token that is looked at. Which
# two scores in the row of *bank* are equal?

# %%
words = ["the", "river", "bank"]
x = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
scores = x @ x.T

# %% tags=["answer"]
with folded():
    print("Those of river and of bank itself: both are 2, and the score of the is 1.")
    display(pd.DataFrame(scores.numpy(), index=words, columns=words))

# %% [markdown]
# **Step 2, scaling.** Divide by $\sqrt{d}$, where $d = 2$ is the number of components of a vector. Section 2 gives the reason.
#
# **Step 3, softmax.** Take $e^{\text{score}}$ and divide by the sum of the row. The result is a row of positive weights whose sum is 1.

# %% tags=["nbval-check-output"]
scaled = scores[2] / 2**0.5
exponentials = scaled.exp()
bank_weights = exponentials / exponentials.sum()
print("scores          ", scores[2])
print("divided by 1.414", scaled)
print("exponentials    ", exponentials, " sum", round(exponentials.sum().item(), 3))
print("weights         ", bank_weights)

# %% [markdown]
# Even *the* has a fifth of the weight: a softmax gives every token a weight above 0. Section 2 shows how a mask makes it exactly 0.
#
# **Step 4, mixing.** The new vector of *bank* is the weighted mean of all three vectors:
#
# $$0.198 \cdot (0, 1) + 0.401 \cdot (2, 0) + 0.401 \cdot (1, 1) = (1.203,\ 0.599)$$
#
# The same formula gives every row:

# %%
mixed = (x @ x.T / 2**0.5).softmax(-1) @ x


def draw_attention(factor):
    """Where attention moves the three vectors if the scores are multiplied by a factor."""
    moved = (factor * x @ x.T).softmax(-1) @ x
    ax = plots.moved_vectors(words, x, moved, title=f"scores × {factor:.3g}")
    ax.set(xlim=(-0.4, 2.6), ylim=(-0.2, 1.3))  # the same axes for all factors


draw_attention(2**-0.5)
plt.show()

# %% [markdown]
# *Attention moves* bank *from (1, 1), hollow, to $(1.2, 0.6)$, filled, towards* river.
#
# **Predict before you run.** The factor on the scores is $1/\sqrt2$ here. Where do the three vectors end if it is 0, and where if it is 10?

# %% tags=["answer"]
with folded():
    for factor in (0, 10):
        draw_attention(factor)
        plt.show()
    print("0: all weights are equal, so all three vectors end in the mean of all. 10: the weights")
    print("go to the highest scores alone. For bank these are two, of river and of bank itself,")
    print("so it ends halfway between them. The ends halfway to bank, for the same reason, and")
    print("river stays. All move inwards or stay, because each becomes a mean.")

# %%
plots.sliders(draw_attention, start={"factor": 2**-0.5}, factor=[0, 0.5, 2**-0.5, 1, 3, 10])

# %% [markdown]
# ### The equation, and its code with the same names
#
# $$\text{attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d}} + M\right) V
# \qquad Q = h W_Q + b_Q,\quad K = h W_K + b_K,\quad V = h W_V + b_V$$
#
# In this example, the vector of each token was its query, its key and its value. In BERT, three learned linear maps compute three
# vectors per token. The *query* is compared with the *keys* of all tokens, and the *values* are averaged with the resulting weights.
#
# | symbol | name | shape |
# |---|---|---|
# | $B$, $T$ | sentences in a batch, tokens in a sentence | numbers |
# | $D$, $H$ | hidden size, heads | numbers |
# | $d = D / H$ | width of one head | number |
# | $h$ | hidden states: one vector for each token | `[B, T, D]` |
# | $W_Q, W_K, W_V$ | weights of the three maps | `[D, D]` |
# | $b_Q, b_K, b_V$ | biases of the three maps | `[D]` |
# | $Q, K, V$ | queries, keys, values, split into heads | `[B, H, T, d]` |
# | $M$ | mask: 0 for a token, very negative for padding (section 2) | `[B, 1, 1, T]` |
# | softmax(...) | attention weights: a row per query, a column per key | `[B, H, T, T]` |


# %%
def attention(Q, K, V, M=0.0):
    """The new vectors, and the weights that made them."""
    weights = (Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5 + M).softmax(-1)
    return weights @ V, weights


new, all_weights = attention(x, x, x)
print("weights\n", all_weights, "\nsame new vectors as by hand:", torch.equal(new, mixed))

# %% [markdown]
# ## 2 The scale and the mask
#
# Take two random vectors with $d$ independent components of mean 0 and variance 1. Their dot product is a sum of $d$ terms, each
# of variance 1. So its standard deviation is $\sqrt{d}$.
#
# **Predict before you run.** Draw a query and eight keys at random. Without the division, is the largest of the eight weights
# near 1/8 or near 1 when $d$ is large?

# %%
sizes, largest = [2, 8, 32, 128, 512], {"not divided": [], "divided by √d": []}
slopes = {}  # norm of the derivative of the weights by the scores, at the last d
with runtime.seeded(seed):
    for d in sizes:
        raw = torch.einsum("nd,nkd->nk", torch.randn(400, d), torch.randn(400, 8, d))
        for name, scale in zip(largest, (1, d**0.5)):
            w = (raw / scale).softmax(-1)
            largest[name].append(w.amax(-1).tolist())
            slopes[name] = (torch.diag_embed(w) - w[:, :, None] * w[:, None]).norm(dim=(1, 2))

# %% tags=["answer"]
with folded():
    labels = dict(xlabel="dimension d", ylabel="largest of 8 weights", ylim=(0, 1.05))
    plots.bands(sizes, largest, base=2, reference=("all equal: 1/8", 1 / 8), **labels)
    plt.show()
    plain, divided = (sum(draws[-1]) / len(draws[-1]) for draws in largest.values())
    print(f"At d = {sizes[-1]} it is {plain:.2f} on average, and {divided:.2f} with the division.")
    print("The bands hold the middle 80 % of 400 draws. The derivative of the weights by the")
    rates = " and ".join(f"{slope.median():.2g} {name}" for name, slope in slopes.items())
    print(f"scores then has a norm (median) of {rates}.")

# %% [markdown]
# Without the division the largest weight approaches 1, and then the softmax passes almost no gradient to the scores.
#
# ### Padding
#
# Sentences of a batch need equal length, so short ones are filled with `[PAD]`, which no token may look at. The mask is *added
# to the scores* before the softmax. In floating point, $e^{\text{very negative}}$ is exactly 0, and the other weights still sum
# to 1.

# %%
padded = torch.cat([x, torch.tensor([[3.0, 3.0]])])  # [PAD] with a long vector
is_token = torch.tensor([1, 1, 1, 0])
M = (1 - is_token) * torch.finfo(torch.float32).min / 2
rows = {}
for name, mask in {"without the mask": 0.0, "with the mask": M}.items():
    new, padded_weights = attention(padded, padded, padded, mask)
    rows[name] = padded_weights[2].tolist()
assert torch.allclose(new[:3], mixed, atol=1e-6)  # the tokens have the same vectors as before
pd.DataFrame(rows, index=[*words, "[PAD]"]).T.rename_axis("weights of bank").round(3)

# %% [markdown]
# Without the mask *bank* would put most of its weight on `[PAD]`, whose vector is the longest. With the mask it has the weights of
# section 1. Minus infinity would give NaN in a row of only padding. In fp16 the most negative number overflows when a negative score is
# added, so the library uses half of it.
#
# ## 3 Several heads
#
# One softmax gives one set of weights. BERT computes $H$ attentions in parallel, the *heads*. Each has its own slice of
# $d = D / H$ features of $Q$, $K$ and $V$. Their results are concatenated. Only the shapes are new.

# %% tags=["nbval-check-output"]
config = bert.BertConfig.tiny()  # D = 32, H = 4
B, T, D, H = 2, 5, config.hidden_size, config.num_attention_heads
with runtime.seeded(seed):
    h, one_layer = torch.randn(B, T, D), bert.BertLayer(config).eval()
heads = h.view(B, T, H, D // H).transpose(1, 2)  # [B,T,D] -> [B,T,H,d] -> [B,H,T,d]
print("h", list(h.shape), " split", list(heads.shape))
print("merging undoes splitting:", torch.equal(heads.transpose(1, 2).reshape(B, T, D), h))

# %% [markdown]
# `h.view(B, H, T, d)` alone has the same shape as the result above.
#
# **Predict before you run.** Does the first head then see the first 8 features of all five tokens, too?

# %% tags=["answer"]
with folded():
    token_of = torch.arange(T).repeat_interleave(D).view(1, T, D)  # each number: its token
    tables = {
        "with transpose": token_of.view(1, T, H, D // H).transpose(1, 2)[0],
        "view alone": token_of.view(1, H, T, D // H)[0],
    }
    plots.splits(tables, [f"head {i}" for i in range(H)])
    plt.show()
    print("No. Colour: the token a number belongs to. With the transpose (top), every")
    print(
        f"head has one row of {D // H} features for each token. With view alone (bottom), it has",
        end=" ",
    )
    print("all\nfeatures of one token and some of the next, so its five rows are not five tokens.")

# %% [markdown]
# ### Exercise 1: self-attention
#
# ● ● ○ · 20 minutes
#
# Write `forward`. The parameters have the names in published files of weights (*checkpoints*), so leave `__init__` as it is. The
# check loads weights into your class, compares the outputs, and names the usual mistakes.


# %%
class MyAttention(nn.Module):
    """Self-attention in several heads; config is a BertConfig."""

    def __init__(self, config):
        super().__init__()
        D, self.num_heads = config.hidden_size, config.num_attention_heads
        self.query, self.key, self.value = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, h, M=0.0):
        """h [B,T,D], M [B,1,1,T] is added to the scores; returns [B,T,D]."""
        # your lines go here


attention_right = checks.check_self_attention(MyAttention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Four steps: the three maps, the split of section 3, `attention` of section 1 (it works on `[B,H,T,d]` as it is), and the merge
# of section 3. `attention` returns two things. `x.flatten(2)` joins all dimensions from the third on, so `[B,T,H,d]` becomes
# `[B,T,D]`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# It is in the folded cell below, which the notebook uses where the check does not accept your class.
#
# </details>
#
# The cell after the solution compares the class in use with the library's, on the same weights. The second row of the batch ends with two
# padded tokens.


# %% tags=["solution"]
class SolvedAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        D, self.num_heads = config.hidden_size, config.num_attention_heads
        self.query, self.key, self.value = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, h, M=0.0):
        B, T, D = h.shape
        parts = (
            one(h).view(B, T, self.num_heads, -1) for one in (self.query, self.key, self.value)
        )
        Q, K, V = (part.transpose(1, 2) for part in parts)
        return attention(Q, K, V, M)[0].transpose(1, 2).flatten(2)


Attention = MyAttention if attention_right else SolvedAttention


# %%
def with_weights(module, other):
    """The module in evaluation mode, with the weights of the other one."""
    module.load_state_dict(other.state_dict())
    return module.eval()


attention_mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
M = bert.BertModel.additive_mask(attention_mask, h)
theirs = one_layer.attention.self
ours = with_weights(Attention(config), theirs)
torch.testing.assert_close(ours(h, M), theirs(h, M), atol=1e-6, rtol=1e-5)
print(f"{Attention.__name__} and {type(theirs).__name__}: equal to 1e-6")

# %% [markdown]
# ## 4 The layer
#
# A linear map $W_O$, with bias $b_O$, mixes the results of the heads. Its output is *added* to the input of attention; this is
# the *residual connection*. Then LayerNorm shifts each token's vector to mean 0 and scales it to variance 1. Two learned vectors
# $g$ and $b$ scale and shift the result (Ba et al. 2016):
#
# $$\text{LayerNorm}(x) = g \cdot \frac{x - \text{mean}(x)}{\sqrt{\text{var}(x) + \varepsilon}} + b$$
#
# Mean and variance are taken over the $D$ features of one token. Other tokens and other sentences have no influence. BERT's
# $\varepsilon$ is $10^{-12}$.


# %%
def layer_norm(x, g=1.0, b=0.0, eps=1e-12):
    """[..., D] to [..., D]; the variance divides by D, not D - 1."""
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return g * (x - mean) / (var + eps).sqrt() + b


numbers = torch.tensor([1.0, 2.0, 6.0])
same = torch.allclose(layer_norm(numbers), F.layer_norm(numbers, (3,)))
print("1, 2, 6 becomes", layer_norm(numbers), " same as torch:", same)

# %% [markdown]
# By hand: the three numbers have the mean 3, so they differ from it by −2, −1 and 3. The mean of the squares 4, 1 and 9 is 14/3, and
# the differences are divided by its root.
#
# The second half of the layer is the *feed-forward network*. It has two linear maps, $W_1$ to a larger width and $W_2$ back to $D$. Between
# them is **GELU**: $\text{GELU}(x) = x \, \Phi(x)$, where $\Phi$ is the distribution function of the standard normal distribution
# (Hendrycks and Gimpel 2016). Many programs use an approximation with $\tanh$, but BERT in *transformers*, the library of Hugging Face,
# uses the exact function.

# %%
points = torch.linspace(-5, 5, 501)
exact = points * (1 + torch.erf(points / 2**0.5)) / 2
tanh_error = F.gelu(points, approximate="tanh") - exact
with plots.style():
    ax = plt.subplots(figsize=(5, 2.6), layout="constrained")[1]
    ax.plot(points, exact, label="GELU")
    ax.plot(points, points.clamp(min=0), "--", label="ReLU")
    ax.set(xlabel="x", ylabel="value")
    ax.legend()
    plt.show()
print(f"largest error {tanh_error.abs().max():.5f}, smallest value of GELU {exact.min():.2f}")

# %% [markdown]
# *GELU is near 0 for very negative x and near x for large x. Unlike ReLU it is smooth, with a minimum of −0.17.* The error of the
# approximation is about fifty times the tolerance of $10^{-5}$ with which this notebook compares encoders.

# %% [markdown]
# ### Exercise 2: add and norm
#
# ● ○ ○ · 10 minutes
#
# Both halves of the layer end in the same way: a linear map, the sum with the residual, and LayerNorm. Write
# `forward`.


# %%
class MyAddNorm(nn.Module):
    """The end of both halves of a layer; width is the number of features of x."""

    def __init__(self, width, config):
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x, residual):
        """x [B,T,width], residual [B,T,D]; returns [B,T,D]."""
        # your lines go here


add_norm_right = checks.check_add_norm(MyAddNorm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# One line. In the drawing, two arrows enter the box "add and LayerNorm". LayerNorm comes after the sum.
#
# </details>
#
# <details><summary>Solution</summary>
#
# It is in the folded cell below, which the notebook uses where the check does not accept your class.
#
# </details>


# %% tags=["solution"]
class SolvedAddNorm(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x, residual):
        return self.LayerNorm(residual + self.dense(x))


AddNorm = MyAddNorm if add_norm_right else SolvedAddNorm

# %% [markdown]
# ### Exercise 3: the layer
#
# ● ● ○ · 15 minutes
#
# Write the whole layer of the drawing, with $a$ as the output of its first half:
#
# $$a = \text{LayerNorm}(h + \text{attention}(h)\,W_O + b_O) \qquad
# h' = \text{LayerNorm}(a + \text{GELU}(a\,W_1 + b_1)\,W_2 + b_2)$$
#
# As in section 1, a row is a token. As in the drawing, $W_O$ and $W_2$ belong to add-and-norm. `nn.ModuleDict` is there only to give the parts their
# published names. In training, *dropout* sets random values to 0, in the attention weights and in the outputs of $W_O$ and $W_2$. It is left out here.


# %%
class MyLayer(nn.Module):
    """A BERT layer. The names of its parts are those of published checkpoints."""

    def __init__(self, config):
        super().__init__()
        D, inner = config.hidden_size, config.intermediate_size
        self.attention = nn.ModuleDict({"self": Attention(config), "output": AddNorm(D, config)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(D, inner)})  # W1 and b1
        self.output = AddNorm(inner, config)

    def forward(self, h, M=0.0):
        """h [B,T,D], M [B,1,1,T]; returns [B,T,D]."""
        # your lines go here


layer_right = checks.check_layer(MyLayer)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `self.attention.self(h, M)` is the attention, and `self.attention.output(x, residual)` is its add-and-norm.
# `F.gelu(self.intermediate.dense(a))` is the first linear map of the feed-forward network, with GELU.
#
# </details>
#
# <details><summary>Solution</summary>
#
# It is in the folded cell below, which the notebook uses where the check does not accept your class.
#
# </details>


# %% tags=["solution"]
class SolvedLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        D, inner = config.hidden_size, config.intermediate_size
        self.attention = nn.ModuleDict({"self": Attention(config), "output": AddNorm(D, config)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(D, inner)})
        self.output = AddNorm(inner, config)

    def forward(self, h, M=0.0):
        a = self.attention.output(self.attention.self(h, M), h)
        return self.output(F.gelu(self.intermediate.dense(a)), a)


Layer = MyLayer if layer_right else SolvedLayer

# %%
ours = with_weights(Layer(config), one_layer)
torch.testing.assert_close(ours(h, M), one_layer(h, M), atol=1e-5, rtol=1e-5)
print(f"{Layer.__name__} and mmlkit.bert.BertLayer: equal to 1e-5")

# %% [markdown]
# ### A common mistake
#
# Some formulas have the second residual start at $h$, the input of the layer, and not at $a$ ([notebook 11](11_pals.ipynb) has an example). All
# shapes fit, but it is a different model.
#
# **Predict before you run.** Give the same weights to the right and to the wrong layer. Is the cosine of their outputs near 1, or
# far below?


# %%
class MisprintedLayer(Layer):
    """As Layer, but with the wrong second residual."""

    def forward(self, h, M=0.0):
        a = self.attention.output(self.attention.self(h, M), h)
        return self.output(F.gelu(self.intermediate.dense(a)), h)


right, wrong = ours(h, M), with_weights(MisprintedLayer(config), one_layer)(h, M)
fresh_cosine = F.cosine_similarity(right, wrong, dim=-1).mean()

# %% tags=["answer"]
with folded():
    print(f"Near 1: for one fresh layer the cosine is {fresh_cosine:.3f}.")
    print(f"The largest difference of a feature is {(right - wrong).abs().max():.2f}.")

# %% [markdown]
# At initialisation the output of attention is small, so $a$ is close to LayerNorm($h$), and $h$ itself is nearly normalised here. So
# adding $h$ instead of $a$ changes little, and the mistake is easy to overlook. Section 6 repeats the comparison with six trained layers.
#
# ## 5 The model
#
# **Embeddings.** A tokenizer cuts a text into word pieces, the tokens, and gives each a number. A pair of sentences becomes one
# row: `[CLS] first [SEP] second [SEP]`. Without further information, attention ignores the order of its input. So BERT adds a
# learned vector for the position to that of the word piece. A third vector is for the segment: 0 in the first sentence and 1 in
# the second (`token_type_ids`). LayerNorm follows the sum.

# %% tags=["nbval-check-output"]
encoder, tokenizer = bert.load_pretrained(settings.model, device="cpu")
pair = tokenizer("Is the bank open?", "The bank is shut.", return_tensors="pt")
columns = {"piece": tokenizer.convert_ids_to_tokens(pair.input_ids[0])}
columns |= {"input_ids": pair.input_ids[0], "position": range(pair.input_ids.shape[1])}
pd.DataFrame({**columns, "token_type_ids": pair.token_type_ids[0]}).T


# %%
class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        D = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, D)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, D)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, D)
        self.LayerNorm = nn.LayerNorm(D, eps=config.layer_norm_eps)

    def forward(self, input_ids, token_type_ids):
        """Two tables of numbers [B,T] to vectors [B,T,D]."""
        positions = torch.arange(input_ids.shape[1])
        summed = self.word_embeddings(input_ids) + self.position_embeddings(positions)
        return self.LayerNorm(summed + self.token_type_embeddings(token_type_ids))


# %% [markdown]
# *The sum in a picture*: the first 40 features of each part, and of their sum, for the pair above.

# %% tags=["setup"]
part, ids = encoder.embeddings, pair.input_ids[0]
summands = {
    "word piece": part.word_embeddings(ids),
    "position": part.position_embeddings(torch.arange(len(ids))),
    "segment": part.token_type_embeddings(pair.token_type_ids[0]),
}
summands["sum, before LayerNorm"] = sum(summands.values())

# %% tags=["setup"]
with plots.style():
    fig, axes = plt.subplots(1, 4, figsize=(11, 2.9), sharey=True, layout="constrained")
    scale = dict(vmin=-0.15, vmax=0.15, cmap="RdBu_r", aspect="auto", interpolation="nearest")
    for ax, (name, values) in zip(axes, summands.items()):
        image = ax.imshow(values[:, :40], **scale)
        ax.set(title=name, xlabel="feature")
        ax.grid(False)
    pieces = tokenizer.convert_ids_to_tokens(ids)
    axes[0].set_yticks(range(len(ids)), [f"→ {p}" if p == "bank" else p for p in pieces])
    fig.colorbar(image, ax=axes, label="value")
    plt.show()

# %% [markdown]
# *The two rows of* bank *(arrows) are equal on the left. Position and segment differ, so their sums differ. All panels have one scale.*
#
# **The whole encoder** is the embeddings, the layers, and a *pooler*: one linear map and a $\tanh$ on the vector of `[CLS]`, for
# tasks that need one vector per text.


# %%
class MyBert(nn.Module):
    def __init__(self, config, layer=Layer):
        super().__init__()
        layers = [layer(config) for _ in range(config.num_hidden_layers)]
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.hidden_size)})

    def forward(self, input_ids, attention_mask, token_type_ids):
        """Every token's last vector [B,T,D], and the pooled vector [B,D]."""
        h = self.embeddings(input_ids, token_type_ids)
        M = (1 - attention_mask)[:, None, None] * torch.finfo(h.dtype).min / 2
        for layer in self.encoder.layer:
            h = layer(h, M)
        return h, torch.tanh(self.pooler.dense(h[:, 0]))


# %%
mine, theirs = with_weights(MyBert(encoder.config), encoder)(**pair), encoder(**pair)
torch.testing.assert_close(mine, tuple(theirs), atol=1e-5, rtol=1e-5)
print("last_hidden_state", list(mine[0].shape), " pooler_output", list(mine[1].shape))
print("MyBert and mmlkit.bert.BertModel: equal to 1e-5")

# %% [markdown]
# **Checkpoint.** This is BERT's encoder. From section 8 on, the notebook uses `mmlkit.bert.BertModel`.
#
# ### Where do 109,482,240 parameters come from?
#
# Here $V$ is the number of word pieces (not the values of section 1), $P$ of positions, $L$ of layers, $D$ the hidden size and $I$
# the feed-forward width. A linear map from $m$ to $n$ features has $mn$ weights and $n$ biases. $H$ does not appear, because $H$
# slices of $D/H$ features need as many weights as one of $D$.
#
# **Predict before you run.** Which part of BERT-base is largest: the word table, the linear maps of attention in all layers, or
# the feed-forward networks in all layers?


# %% tags=["nbval-check-output"]
def count_parameters(c):
    """The terms of the sum, by name, for a BertConfig."""
    D, inner, L = c.hidden_size, c.intermediate_size, c.num_hidden_layers
    tables = c.max_position_embeddings + c.type_vocab_size
    return {
        "word table: V D": c.vocab_size * D,
        "position and segment tables: (P + 2) D": tables * D,
        "LayerNorms: (2 L + 1) 2 D": (2 * L + 1) * 2 * D,
        "query, key, value, output: L 4 (D² + D)": L * 4 * (D * D + D),
        "feed-forward: L (2 D I + I + D)": L * (2 * D * inner + inner + D),
        "pooler: D² + D": D * D + D,
    }


# %%
kinds = {"BERT-base": bert.BertConfig.base(), "BERT-large": bert.BertConfig.large()}
kinds["this notebook's"] = encoder.config
terms = pd.DataFrame({name: count_parameters(c) for name, c in kinds.items()})
terms.loc["sum"] = terms.sum()
with torch.device("meta"):  # shapes only: no memory for the numbers
    empty = [bert.BertModel(c) for c in kinds.values()]
terms.loc["counted in the model"] = [sum(p.numel() for p in m.parameters()) for m in empty]

# %% tags=["answer"]
with folded():
    base = terms["BERT-base"].drop(["sum", "counted in the model"]).sort_values()
    print(f"The largest part is '{base.index[-1]}' with {base.iloc[-1] / base.sum():.0%}.")
    display(terms.map("{:,}".format))

# %% [markdown]
# ## 6 Trained weights
#
# The library saves the encoder under the names that transformers uses, and transformers loads the folder with its own code. In
# the profile `fast` the weights are MiniLM's (notebook 00 says what MiniLM is). The next cell compares three encoders with that of
# transformers, on the same weights. *yours* is built from your classes, or from the solutions where a check did not accept
# yours (as in the stored run). *misprinted* has the wrong second residual in every layer.
#
# **Predict before you run.** One fresh layer with the misprint had a cosine of 0.98 with the right one. And six trained layers: 0.9, 0.5 or 0?

# %%
import tempfile

import transformers

transformers.utils.logging.disable_progress_bar()
with tempfile.TemporaryDirectory() as folder:
    bert.save_pretrained(encoder, tokenizer, folder)
    published = transformers.AutoModel.from_pretrained(folder).eval()
print(type(published).__name__, "of transformers", transformers.__version__)

# %%
texts = ["The kettle did not fit on the shelf because it was too tall.", "Is the bank open?"]
batch = tokenizer(texts, padding=True, return_tensors="pt")
models = {"mmlkit": encoder, "yours": with_weights(MyBert(encoder.config), encoder)}
models["misprinted"] = with_weights(MyBert(encoder.config, MisprintedLayer), encoder)
tolerance = 1e-5 if profile == "fast" else 1e-4  # BERT-base has more layers, so more rounding
real, furthest, cosines = batch.attention_mask.bool(), {}, {}
theirs = published(**batch).last_hidden_state[real]
for name, model in models.items():
    vectors = model(**batch)[0][real]
    furthest[name] = (vectors - theirs).abs().max().item()
    cosines[name] = F.cosine_similarity(vectors, theirs, dim=-1).mean()
assert max(furthest["mmlkit"], furthest["yours"]) < tolerance

# %% tags=["answer"]
with folded():
    print("Largest difference from transformers, and mean cosine:")
    for name in models:
        print(f"{name:>10}  {furthest[name]:.2g}  {cosines[name]:.3f}")

# %% [markdown]
# In six trained layers, the wrong residual changes the result strongly. Matching shapes do not reveal such a mistake, but a comparison with
# a reference does.
#
# ### Padding changes nothing
#
# A sentence must have the same vectors alone and in a batch with longer ones. The next cell pads one sentence to forty tokens,
# and then forgets the mask.

# %%
alone = tokenizer(texts[1], return_tensors="pt")
filled = tokenizer(texts[1], padding="max_length", max_length=40, return_tensors="pt")
n, reference = alone.input_ids.shape[1], encoder(**alone).last_hidden_state
with_mask = encoder(**filled).last_hidden_state[:, :n]
without = encoder(filled.input_ids).last_hidden_state[:, :n]  # mask forgotten
print("with the mask, equal to 1e-5:", torch.allclose(with_mask, reference, atol=1e-5))
print(f"mask forgotten: largest difference {(without - reference).abs().max():.2f}")

# %% [markdown]
# ### How the weights were trained
#
# BERT was trained on tasks that need no labels. In *masked language modelling* (Devlin et al. 2019, section 3.1), 15 % of the tokens are chosen
# as *hidden words*, and the model predicts them from the rest: *The river [MASK] was steep.* A *word head* turns each token's last vector into one
# score per word of the vocabulary. In the second task, the vector of `[CLS]` decides whether the second sentence followed the first in the text;
# the segments are for this task. Afterwards the heads are dropped and the encoder is kept. [Notebook 08](08_ranking_pretraining.ipynb) writes the
# first loss.

# %% [markdown]
# ## 7 Result
#
# **The answer.** What does BERT do with a sentence, number by number? It adds three vectors per token. Every layer then changes each token's vector
# twice: by a weighted mean over the tokens, and by two linear maps with GELU between them within the token. Each change is added to the vector,
# and the sum is normalised. Your three classes do it.

# %%
print(f"{int(real.sum()) * encoder.config.hidden_size:,} numbers of two sentences:", end=" ")
print(f"yours and the published ones differ by at most {furthest['yours']:.0e},")
print(f"with the misprinted residual by up to {furthest['misprinted']:.1f}.")

# %% [markdown]
# ## 8 Looking inside: can one read the weights?
#
# `BertSelfAttention.probabilities` returns the attention weights of a layer. The next cell collects those of all layers. Layers
# and heads are counted from 0.


# %%
def attention_maps(text):
    """The tokens of a text, and all weights [L,H,T,T]."""
    ids = tokenizer(text, return_tensors="pt").input_ids
    h, maps = encoder.embeddings(ids, torch.zeros_like(ids)), []
    for layer in encoder.encoder.layer:
        maps.append(layer.attention.self.probabilities(h)[0])
        h = layer(h)
    return tokenizer.convert_ids_to_tokens(ids[0]), torch.stack(maps)


kettle_tokens, maps = attention_maps(texts[0])
print(list(maps.shape), "layers, heads, tokens that look, tokens looked at")

# %% [markdown]
# **Predict before you run.** Is there a head that puts more than half of its weight on the *previous* token? One for the
# *next* token? And do few or many heads do so for the *first* token, `[CLS]`?

# %%
previous = maps.diagonal(-1, dim1=2, dim2=3).mean(-1)  # from each token to the one before it
following = maps.diagonal(1, dim1=2, dim2=3).mean(-1)
looks = {"Previous token": previous, "Next token": following, "First token": maps[..., 0].mean(-1)}

# %% tags=["answer"]
with folded():
    plots.head_tables(looks, "mean attention weight")
    plt.show()
    for name, values in list(looks.items())[:2]:
        place = "layer {}, head {}".format(*divmod(int(values.argmax()), values.shape[1]))
        print(f"{name}: at most {values.max():.2f} ({place}).")
    later = looks["First token"][1:]
    print(f"First token: {int((later > 0.5).sum())} of the {later.numel()} heads", end=" ")
    print("from layer 1 on put more than half of their weight there.")

# %% [markdown]
# These numbers are of one sentence. In BERT-base, many heads look at `[SEP]` (Clark et al. 2019). The weights of a token must sum to 1, so a
# special token may receive the weight when nothing else matches.
#
# The picture shows the head that looks from *it* most at *kettle*. With the sliders you can look at the heads that the answer names. With a running
# kernel, there is also a text box for a sentence of your own.


# %%
def draw(layer, head, sentence):
    tokens, maps = attention_maps(sentence)
    plots.attention(maps[layer, head], tokens, title=f"Layer {layer}, head {head}")


layers, heads = map(range, previous.shape)
it_to_kettle = maps[:, :, kettle_tokens.index("it"), kettle_tokens.index("kettle")]
chosen = divmod(int(it_to_kettle.argmax()), maps.shape[1])  # layer and head
start = dict(zip(("layer", "head"), chosen))
plots.sliders(draw, start=start, layer=layers, head=heads, sentence=texts[0])

# %% [markdown]
# ### Does a head resolve the pronoun *it*?
#
# *The kettle did not fit on the shelf because **it** was too tall.* The head above is the one of all heads (72 in
# MiniLM) in which *it* looks most at *kettle*. The sentence by which we chose the head cannot test it. The test has six other pairs of sentences, which we wrote for it. In each pair one word changes, and with it the noun that *it* means.
#
# **Predict before you run.** A head that resolves the pronoun would prefer another noun when the adjective changes. In how many of the six pairs
# does the chosen head do so?

# %%
pairs = [
    ("The ladder did not reach the roof because it was too {}.", "short", "high"),
    ("The cup did not fit in the box because it was too {}.", "big", "small"),
    ("The ball broke the window because it was so {}.", "hard", "thin"),
    ("The rope did not hold the boat because it was too {}.", "weak", "heavy"),
    ("The coin did not go into the slot because it was too {}.", "wide", "narrow"),
    ("The cart did not pass the gate because it was too {}.", "large", "small"),
]

# %% tags=["setup"]
links = []
for text, *adjectives in pairs:
    for place, adjective in enumerate(adjectives):  # the first adjective fits the first noun
        pieces, found = attention_maps(text.format(adjective))
        nouns = pieces[2], pieces[pieces.index("the", 2) + 1]
        it = found[(*chosen, pieces.index("it"))]
        to_nouns = [it[pieces.index(noun)].item() for noun in nouns]
        ok = to_nouns[place] > to_nouns[1 - place]
        links.append((*nouns, adjective, nouns[place], *to_nouns, ok))
names = ["first noun", "second noun", "adjective", "it is", "to first", "to second", "right"]
choices = pd.DataFrame(links, columns=names)
first = choices["to first"] > choices["to second"]
switches = sum(first[i] != first[i + 1] for i in range(0, len(choices), 2))


# %% tags=["setup"]
def write_weights(ax):
    """Write the weights, in percent, into the cells of an attention map, in place of its bar."""
    values = ax.images[0].get_array()
    ax.images[0].colorbar.remove()
    look = dict(ha="center", va="center", fontsize=8)
    for i, row in enumerate(values.tolist()):
        for j, weight in enumerate(row):
            colour = "black" if weight > 0.45 else "white"
            ax.text(j, i, f"{100 * weight:.0f}", color=colour, **look)


meant = [(row["adjective"], row["it is"]) for _, row in choices[:2].iterrows()]
first_pair = [attention_maps(pairs[0][0].format(adjective)) for adjective, _ in meant]
shared = ["/".join(dict.fromkeys(both)) for both in zip(*(pieces for pieces, _ in first_pair))]

# %% tags=["answer"]
with folded():
    name, kept = f"layer {chosen[0]}, head {chosen[1]}", len(pairs) - switches
    print(f"In {switches} of {len(pairs)} pairs; in {kept} pairs {name} prefers the same noun.")
    print("The picture has the first pair. If the head resolved the pronoun, the two rows would")
    print("differ in the columns of the two nouns. (Weights in percent.)")
    rows_of_it = [found[(*chosen, pieces.index("it"))] for pieces, found in first_pair]
    ax = plots.attention(torch.stack(rows_of_it), shared, title=f"Where it looks, {name}")
    write_weights(ax)
    ax.set_yticks((0, 1), [f"too {word}: the {noun}" for word, noun in meant])
    ax.set_ylabel("")
    plt.show()
    display(choices.drop(columns="right").round(2))

# %% [markdown]
# (In the picture, the noun that *it* means stands after the colon.) This head links *it* to a noun before it, but it does not resolve the pronoun:
# for that, the adjective would have to matter. It looked right only on the sentence by which we had chosen it. Another head may resolve
# pronouns, but it would have to pass such a test. An attention map suggests a hypothesis, but it is not an explanation (Jain and Wallace 2019).

# %% [markdown]
# ## Exercises

# %% [markdown]
# ### Exercise 4: a model without order
#
# ● ● ○ · 15 minutes
#
# Change the model: leave the position vectors out of the embeddings. `part` is an `Embeddings` of section 5, so it has the same
# parts. *Predict first*: how similar are the mean vectors of *The dog bit the man* and *The man bit the dog* with positions, and how
# similar without? Then run the cells below, and unfold the last output.


# %%
def my_embedding(part, input_ids, token_type_ids):
    """input_ids and token_type_ids [B,T]; returns vectors [B,T,D] without positions."""
    # your lines go here


order_right = checks.check_order_free(my_embedding)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take `Embeddings.forward` of section 5 and leave one term out. `part.word_embeddings(input_ids)` looks rows up.
#
# </details>
#
# <details><summary>Solution</summary>
#
# It is in the folded cell below.
#
# The cosine is 1.0000. Both sentences have the same words, and attention ignores order. Without positions, the vectors are the
# same in another order, so their means agree. Within a segment, order enters through the position vectors alone.
#
# </details>


# %% tags=["solution"]
def solved_embedding(part, input_ids, token_type_ids):
    summed = part.word_embeddings(input_ids) + part.token_type_embeddings(token_type_ids)
    return part.LayerNorm(summed)


without = my_embedding if order_right else solved_embedding

# %%
bites = tokenizer(["The dog bit the man.", "The man bit the dog."], return_tensors="pt")
bite_ids = bites.input_ids, bites.token_type_ids
embedded = {"with positions": encoder.embeddings(*bite_ids)}
embedded["without"] = without(encoder.embeddings, *bite_ids)
for name, hidden in embedded.items():
    for layer in encoder.encoder.layer:
        hidden = layer(hidden)
    embedded[name] = F.cosine_similarity(*hidden.mean(1), dim=0).item()

# %% tags=["answer"]
with folded("Output of the solution"):
    for name, value in embedded.items():
        print(f"{name}: cosine of the means {value:.4f}")

# %% [markdown]
# ## If it goes wrong
#
# - *The shapes are right, the numbers are not.* Usual causes are `view(B, H, T, d)` without `transpose`, and `var` with its
#   default, which divides by D − 1. The check of exercise 1 names the first. The classes avoid the second with `nn.LayerNorm`.
# - *Results change from call to call.* The model is in training mode, so dropout is active. Call `model.eval()`.
# - *A sentence's vector depends on its neighbours in the batch.* `attention_mask` was not passed, or the mean counts padding.
#
# ## Takeaways
#
# - A layer of BERT mixes each token's vector with those of the other tokens: attention is a weighted mean, whose weights are a softmax of
#   scaled dot products. The mask is added before the softmax.
# - A layer is attention, add and norm, feed-forward, add and norm. The second residual is $a$, the output of the first half.
# - Correct shapes do not prove an implementation. Compared numbers do.
# - A sentence by which a head was chosen cannot test the head.
#
# ## References
#
# - Vaswani et al. (2017), *Attention is all you need*, [arXiv:1706.03762](https://arxiv.org/abs/1706.03762), §3.2
# - Devlin et al. (2019), *BERT*, [arXiv:1810.04805](https://arxiv.org/abs/1810.04805), §3
# - CS224N (Stanford), default final project handout: *minBERT and downstream tasks*
# - Ba, Kiros and Hinton (2016), *Layer normalization*, [arXiv:1607.06450](https://arxiv.org/abs/1607.06450)
# - Hendrycks and Gimpel (2016), *Gaussian error linear units*, [arXiv:1606.08415](https://arxiv.org/abs/1606.08415)
# - Clark et al. (2019), *What does BERT look at?*, [arXiv:1906.04341](https://arxiv.org/abs/1906.04341)
# - Jain and Wallace (2019), *Attention is not explanation*, [arXiv:1902.10186](https://arxiv.org/abs/1902.10186)
# - Wang et al. (2020), *MiniLM*, [arXiv:2002.10957](https://arxiv.org/abs/2002.10957)
#
# Before: [00 Start here](00_start_here.ipynb). Next: [02 Fine-tuning](02_finetuning.ipynb).
