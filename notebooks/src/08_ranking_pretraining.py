# %% [markdown]
# # 08 Ranking and pre-training
#
# Which of several sentences answers a question? MT-DNN learns this with a ranking loss. You compute the loss by hand, plot the version
# that the paper prints, and see why badly ranked questions hardly count in it. Then you train the earlier model of 2015, and try the
# pre-training that came between the two.
#
# | | |
# |---|---|
# | time | fast: 1½ min on two CPU cores · colab: about 15 min on one GPU (estimated) · paper: about 1 h on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [07 One encoder, many tasks](07_mtdnn_san.ipynb) |
# | papers | Liu et al. 2019 (MT-DNN, its first arXiv version), Eqs. 5, 8, 9 · Liu et al. 2015, as the slides of Baldrati and Berti describe it · Devlin et al. 2019 (BERT), section 3.1 |

# %% [markdown]
# ## You will be able to
#
# - compute the ranking loss of a query by hand and in code,
# - compute the lowest loss that a bounded score allows, and compare the gradients of three versions of the loss,
# - turn a text into letter trigrams, and name the information that is lost,
# - mask words as BERT does, and train a small encoder to predict them,
# - judge pre-training on held-out text, against a baseline of word frequencies.
#
# ![Above: a question and three candidate sentences. The encoder reads the question packed with each candidate and gives one score each. A
# softmax over the three scores gives the probability of the answer, and the loss is minus its log. Below: a sentence with one word replaced
# by [MASK]. The encoder gives a vector for each position, and the table of word vectors turns the vector at [MASK] into a probability for
# every word.](images/08_ranking.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with a subfolder for each task; None: what the profile says
reviews = None  # the number of reviews for pre-training; None: what the profile says
seeds = 3  # repetitions of the model of 2015

# %%
try:
    import mmlkit
except ImportError:  # on Colab: install the library from its one address
    get_ipython().run_line_magic(
        "pip", 'install -q "mmlkit[notebooks,minilm] @ git+https://github.com/mmlkit/mmlkit"'
    )
    import mmlkit
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from mmlkit import checks, plots
from mmlkit.plots import sliders
from mmlkit.profiles import get_profile
from mmlkit.runtime import describe, pick_device

# %%
from torch.nn import functional as F

size, device, about = get_profile(profile), pick_device(), describe()
source = source or size.source
reviews = reviews or (80 if profile == "fast" else 1500)
print(f"mmlkit {mmlkit.__version__}, torch {about['versions']['torch']} on {about['device']}")
print(f"weights {size.model}, data from {source}, {reviews} reviews for pre-training")

# %% [markdown]
# ## 1 A question and its candidates
#
# QNLI asks whether a sentence answers a question. As a classification, every pair of question and sentence gets its own *yes* or *no*. As
# a ranking, all sentences of one question form a *query*, and exactly one of them is the answer. `rank_queries` groups the rows into
# queries.

# %%
from mmlkit.data import load_task
from mmlkit.heads import rank_queries

qnli = rank_queries(load_task("qnli", source))
first = np.flatnonzero(qnli.dev.queries == qnli.dev.queries[0])
print("question:", qnli.dev.texts[first[0]][0])
for row in first:
    print("  answer  " if qnli.dev.labels[row] else "  other   ", qnli.dev.texts[row][1])
per_query = len(qnli.dev) / len(np.unique(qnli.dev.queries))
print(f"{len(np.unique(qnli.dev.queries))} dev queries, {per_query:.2f} candidates on average")

# %% [markdown]
# With $\mathrm{Rel}$ the score of one candidate and $A^+$ the answer, the loss is
#
# $$\Pr(A^+ \mid Q) = \frac{\exp(\gamma\, \mathrm{Rel}(Q, A^+))}{\sum_{A'} \exp(\gamma\, \mathrm{Rel}(Q, A'))} \quad (9) \qquad
# L = -\sum_Q \log \Pr(A^+ \mid Q) \quad (8, \text{ with its log})$$
#
# | symbol | name | shape |
# |---|---|---|
# | $Q$, $A'$ | a query; one of its candidates (the sum runs over all of them) | |
# | $N$, $B$ | candidates of a query, candidates of the whole batch | numbers |
# | $\mathrm{Rel}$ | the score of a candidate | `scores [B]` |
# | $A^+$ | the answer | `relevant [B]`, 1 for the answer |
# | | the number of candidates of each query, in order | `groups`, one number for each query |
# | $\gamma$ | a factor; 1 in the paper | `gamma` |
#
# ### By hand
#
# Three candidates have the scores $\ln 4$, $\ln 2$ and $0$, and $\gamma = 1$. The first one is the answer.
#
# **Predict before you run.** What is the probability of the answer, as a fraction?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
scores = torch.tensor([4.0, 2.0, 1.0]).log()
chances = scores.softmax(0)
loss = -chances[0].log()
print(f"Answer: {7 * chances[0]:.0f}/7, since the three exponentials are 4, 2 and 1.")
print(f"The loss is ln(7/4) = {loss:.4f}.")

# %% [markdown]
# ### In code
#
# A batch holds several queries, one after another, and their numbers of candidates differ. So the softmax runs over each group, and never
# over the whole batch. The code takes the mean over the queries, and Eq. 8 has their sum.

# %%
from mmlkit.heads import ranking_loss


def by_hand(scores, relevant, groups, gamma=1.0):
    """Eqs. 8 and 9 with the log, as a mean over the queries of a batch."""
    parts = zip((gamma * scores).split(groups), relevant.split(groups))
    return -torch.stack([part.log_softmax(0)[right == 1].sum() for part, right in parts]).mean()


# %% [markdown]
# **Checkpoint.** The library's loss gives the same number on random scores, with $\gamma = 2$.

# %%
torch.manual_seed(seed)
scores, groups = torch.randn(9), [3, 2, 4]
relevant = torch.tensor([0, 0, 1, 1, 0, 0, 1, 0, 0])
ours, theirs = (one(scores, relevant, groups, gamma=2) for one in (by_hand, ranking_loss))
torch.testing.assert_close(ours, theirs)
print(f"by hand {ours:.6f}, library {theirs:.6f}")

# %% [markdown]
# ## 2 The loss as printed
#
# The printed equations differ from these in two places:
#
# | where | printed | the problem | corrected |
# |---|---|---|---|
# | Eq. 5 with 9 | $\mathrm{Rel}$ is a sigmoid, "and we simply set $\gamma$ to 1" | the loss has a *floor*, a lowest value, far above 0 | no sigmoid in training |
# | Eq. 8 | $-\sum \Pr(A^+ \mid Q)$, without a log | badly ranked queries hardly count | $-\sum \log \Pr$: the text says "negative log likelihood", and the slides print the log |
#
# ### The floor
#
# **Predict before you run.** A question has two candidates. They have the best scores that a sigmoid allows: 1 for the answer, 0 for the
# other. How large is the loss at $\gamma = 1$?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
floor = -torch.tensor([1.0, 0.0]).softmax(0)[0].log()
ten, sharp = np.log(1 + 9 / np.e), np.log(1 + np.exp(-10))
print(f"Answer: {floor:.4f}. A perfect ranking counts as {(-floor).exp():.0%} sure.")
print(f"With 10 candidates it is {ten:.4f}; with two and gamma = 10 it is {sharp:.5f}.")
found = ranking_loss(torch.tensor([90.0, -90.0]).sigmoid(), torch.tensor([1, 0]), (2,))
torch.testing.assert_close(found, floor)

# %% [markdown]
# With two candidates the loss cannot fall below $\log(1 + 1/e) = 0.3133$. With $N$ candidates the floor is
# $\log(1 + (N-1)\, e^{-\gamma})$.
#
# ### The pull
#
# A floor alone does no harm, because a constant does not change the gradient. The problem is the size of the gradient. Let $w^\top x$ be
# the score before the sigmoid, and let the *margin* $m$ be the answer's $w^\top x$ minus the other's. A softmax reads only differences of
# scores, so $m$ is enough for a loss without a sigmoid. A sigmoid also depends on where the two scores lie. We split the margin evenly:
# the answer has $+m/2$ and the other candidate has $-m/2$.
#
# The *pull* is $-dL/dm$, the negative gradient of the loss with respect to the margin. A gradient step increases the margin in proportion
# to it. We compare three losses:
#
# - the scores as they are, with the log,
# - Eq. 5's sigmoid first, with the log,
# - the literal paper: Eqs. 5, 8 and 9, so the sigmoid first and no log. The code adds 1, so that this loss is positive; the gradient
#   stays the same.
#
# **Predict before you run.** A query is ranked badly, $m = -6$. How many times larger is the pull of the first loss than that of the
# literal one?


# %% tags=["answer"] jupyter={"outputs_hidden": true}
def three_losses(m, gamma=1.0):
    """Each loss of a query with two candidates at the margins m."""
    bounded = gamma * ((m / 2).sigmoid() - (-m / 2).sigmoid())
    return {
        "scores as they are, −log": F.softplus(-gamma * m),
        "Eq. 5's sigmoid, −log": F.softplus(-bounded),
        "literal Eqs. 5, 8, 9, plus 1": 1 - bounded.sigmoid(),
    }


m = torch.linspace(-8, 8, 161, dtype=torch.float64, requires_grad=True)
losses = three_losses(m)
pulls = [-torch.autograd.grad(one.sum(), m, retain_graph=True)[0] for one in losses.values()]
pulls = dict(zip(losses, pulls))
plain, bounded, literal = (pull[20].item() for pull in pulls.values())
print(f"Answer: {plain / literal:.0f} times; {plain:.4f} against {literal:.4f} at m = {m[20]:.0f}.")

# %%
losses = {name: one.detach() for name, one in losses.items()}
plots.loss_and_pull(m.detach(), losses, pulls, lines={"floor 0.3133": floor.item()})
plt.show()
at_zero = [round(pull[80].item(), 4) for pull in pulls.values()]
print("pulls at m = 0:", at_zero, " at m = -6:", [round(p, 4) for p in (plain, bounded, literal)])
low, high = losses["literal Eqs. 5, 8, 9, plus 1"][[-1, 0]].tolist()
assert at_zero[2] == 0.0625 and round(literal, 4) == 0.0093 and literal < bounded < 0.1 < plain

# %% [markdown]
# *At m = −6 the loss without a sigmoid has a pull of 0.998 (right). The sigmoid lowers it to 0.032, and the literal paper, which also
# omits the log, to 0.009. The literal loss plus 1 changes only between 0.73 and 0.27 (left). The dotted floor is that of the second
# loss.*
#
# A badly ranked query should have the strongest pull. With the sigmoid its pull is weak, because both sigmoids are flat there. Without
# the log the pull is even weaker, at every margin: the gradient of the literal loss is that of the log loss times $\Pr(A^+ \mid Q)$,
# which is below 1.
#
# ### What the pull means for training
#
# Take one query at $m = -6$, and let plain gradient descent with learning rate 1 change $m$ itself.
#
# **Predict before you run.** How many steps does each of the three losses need until the answer is ranked first?


# %% tags=["answer"] jupyter={"outputs_hidden": true}
def steps_until_right(name, m=-6.0):
    """The number of gradient steps until the margin is positive."""
    m, steps = torch.tensor(m, dtype=torch.float64, requires_grad=True), 0
    while m <= 0:
        m.data += -torch.autograd.grad(three_losses(m)[name], m)[0]
        steps += 1
    return steps


steps = [steps_until_right(name) for name in losses]
print(f"Answer: {steps[0]}, {steps[1]} and {steps[2]} steps.")
assert 10 * steps[0] < steps[1] and 2 * steps[1] < steps[2]

# %% [markdown]
# This toy changes $m$ directly, with plain gradient descent. Adam and Adamax rescale the gradients, so a constant factor matters less to
# them. But a badly ranked query still counts less than a query near $m = 0$ in the same batch.
#
# The *order* of the candidates is the same with and without the sigmoid, since a sigmoid is monotone. So the library trains without it
# (`score_activation="none"`). `score_activation="sigmoid"` is there for a literal Eq. 5.
#
# ### Change gamma and the number of candidates
#
# A larger $\gamma$ repairs much of the damage: it lowers the floor and strengthens the pull near $m = 0$. Far from 0 the sigmoids are
# still flat, so the pull goes to 0 there for every $\gamma$. The next figure has $N$ candidates; all but the answer have the score
# $-m/2$.


# %%
def draw(gamma, N):
    with torch.enable_grad():
        x = torch.linspace(-8, 8, 161, dtype=torch.float64, requires_grad=True)
        bounded = (x / 2).sigmoid() - (-x / 2).sigmoid()
        curves = {"no sigmoid, gamma = 1": x, f"sigmoid, gamma = {gamma}": gamma * bounded}
        curves = {name: (1 + (N - 1) * (-gap).exp()).log() for name, gap in curves.items()}
        graph = dict(retain_graph=True)
        pulls = {k: -torch.autograd.grad(one.sum(), x, **graph)[0] for k, one in curves.items()}
    losses, lowest = {k: v.detach() for k, v in curves.items()}, np.log1p((N - 1) * np.exp(-gamma))
    lines = {f"floor {lowest:.2g}": lowest}
    plots.loss_and_pull(x.detach(), losses, pulls, lines=lines, top=2.5, title=f"N = {N}")


sliders(draw, start={"gamma": 10, "N": 2}, gamma=[1, 2, 3, 5, 10], N=[2, 3, 5, 10])

# %% [markdown]
# *With γ = 10 and two candidates the floor falls to 0.00005, and the pull at small negative margins exceeds that of the plain loss. Below
# about m = −4 it is weaker, and at m = −8 it is 0.18. In a live notebook, sliders change γ and N.*
#
# ## 3 The model of 2015
#
# MT-DNN has a predecessor with the same name, made for search queries. It ignores the order of words and has no pretrained weights. A
# text becomes counts of *letter trigrams* ($l_1$). The layer $l_2 = \tanh(W_1 l_1)$ with 300 units is shared. Each task $t$ has its own
# layer $l_3 = \tanh(W_2^t\, l_2)$ with 128 units. A classification adds a linear layer to $l_3$. A ranking uses the cosine of the $l_3$
# of query and candidate. A cosine is bounded too, so the library sets $\gamma = 10$ to lower the floor.
#
# Every word first gets the mark # at both ends: *cat* becomes `#cat#`. A trigram is a run of three characters.
#
# **Predict before you run.** Which trigrams does *don't* have? And can the model tell *the dog bites the man* from *the man bites the dog*?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
from mmlkit.studies import DSSM, build_vocabulary, fit_dssm, trigrams


def runs_of_three(word):
    """All runs of three characters of the word between its marks."""
    return [f"#{word}#"[i : i + 3] for i in range(len(word))]


for word in ("cat", "don't"):
    assert dict(trigrams(word)) == {one: runs_of_three(word).count(one) for one in trigrams(word)}
same = trigrams("the dog bites the man") == trigrams("the man bites the dog")
print(
    f"Answer: {' '.join(runs_of_three(word))}. The two sentences are {'equal' if same else 'not'}."
)

# %%
old_data = {"sst2": load_task("sst2", source), "qnli_rank": qnli}
vocabulary = build_vocabulary(row for one in old_data.values() for row in one.train.texts)
model = DSSM(vocabulary, old_data)
own = model.task_layers["sst2"].weight.numel()
print(f"{len(vocabulary):,} trigrams; {model.shared.weight.numel():,} shared parameters")
print(f"{own:,} for each task; with the 50,000 trigrams of 2015 it would share {50_000 * 300:,}")

# %% [markdown]
# ### Does it learn our tasks?
#
# We train it on both tasks, with three seeds. The baseline for the ranking is not only guessing. MiniLM can also rank the candidates
# *without any training here*, by the cosine of question and candidate. The table calls this *untrained*.
#
# **Predict before you run.** The candidates of a question in the mini QNLI share about equally many words with it. Will the model of 2015
# rank better than chance?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
from mmlkit.runtime import seeded


def old_scores(seed):
    """The dev scores of the 2015 model after ten epochs."""
    with seeded(seed):
        model = DSSM(vocabulary, old_data)
    last = fit_dssm(model, old_data, epochs=10, seed=seed).groupby("task").last()
    return {"sst2": last.loc["sst2", "accuracy"], "qnli_rank": last.loc["qnli_rank", "accuracy@1"]}


old = pd.DataFrame([old_scores(seed + i) for i in range(seeds)])
chance = qnli.dev.labels.mean()
gap, error = (
    old["qnli_rank"].mean() - chance,
    np.sqrt(chance * (1 - chance) / qnli.dev.labels.sum()),
)
verdict = "yes" if gap > 2 * error else "no, not by two standard errors"
print(f"Answer: {verdict} ({old['qnli_rank'].mean():.3f} against {chance:.3f} ± {error:.3f}).")

# %%
from mmlkit.bert import load_pretrained
from mmlkit.heads import sentence_vector
from mmlkit.training import metrics

pretrained, tokenizer = load_pretrained(size.model)
pretrained = pretrained.to(device).eval()


@torch.no_grad()
def vectors(texts):
    """The mean of the untrained encoder's vectors for each text."""
    rows = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(device)
    out = pretrained(rows.input_ids, rows.attention_mask, rows.token_type_ids)
    return sentence_vector(out, rows, "mean")


# %%
few = qnli.dev.take(np.arange(min(len(qnli.dev), 1000)))
few = few.take(np.flatnonzero(few.queries != few.queries[-1]))  # the last query may be cut
cosines = F.cosine_similarity(*(vectors(column) for column in zip(*few.texts)))[:, None]
untrained = metrics.compute(few.task, cosines.cpu().numpy(), few.labels, few.queries)
majority = np.bincount(old_data["sst2"].dev.labels).max() / len(old_data["sst2"].dev)
spread = [f"{one.mean():.3f} ± {one.std():.3f}" for one in (old["sst2"], old["qnli_rank"])]
table = {"guessing": [f"{majority:.3f}", f"{chance:.3f}"], "2015, three seeds": spread}
table["MiniLM's cosine, untrained"] = ["", f"{untrained['accuracy@1']:.3f}"]
pd.DataFrame(table, index=["sst2, accuracy", "qnli_rank, accuracy@1"])

# %% [markdown]
# The table gives the mean ± standard deviation over seeds. *Accuracy@1* is the share of questions whose answer is ranked first. The model
# of 2015 learns a little on both tasks. On the ranking it is right in 58.5 % of the questions, and guessing in 50 %. It has no
# information on word order, and the mini QNLI was written so that shared words do not reveal the answer.
#
# MiniLM is right in 82 % of the questions without any training on them. Its vectors were learned from other texts. But this is more than
# pre-training: the bundled MiniLM was also trained on many sentence pairs, so that similar sentences get a high cosine. The table does
# not separate the two. It is one recent encoder against one old model.
#
# ## 4 Pre-training in miniature
#
# BERT came between the two models. It is an encoder that is trained on a large amount of plain text before it is trained on a task. The
# first stage of MT-DNN is this pre-training, and its authors use BERT's released weights. The two objectives can be tried on a small
# scale: predict masked words, and decide whether one sentence follows another.
#
# ### BERT's rule for masked words
#
# The model has to predict 15 % of the words. A *word* in this section is a token, so it may be part of a longer word. Of these 15 %, 80 %
# become [MASK], 10 % become a random word, and 10 % stay as they are. So the encoder cannot tell which of the visible words are correct.
#
# **Predict before you run.** Of 1,000 words, how many does [MASK] replace?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
from mmlkit.training import mask_tokens

texts = {
    split: [text for (text,) in getattr(load_task("cfimdb"), split).texts]
    for split in ("train", "dev")
}  # reviews of several sentences, from the repository
joined = " ".join(texts["train"])
coded = tokenizer(joined, add_special_tokens=False, truncation=False, verbose=False)
ids = torch.tensor(coded["input_ids"])[None]
masked, labels = mask_tokens(ids, tokenizer, seed=seed)
asked, hidden = (labels >= 0).float().mean(), (masked == tokenizer.mask_token_id).float().mean()
print(f"Answer: {1000 * hidden:.0f}, since {asked:.1%} of {ids.numel():,} words are asked for.")

# %%
print(tokenizer.decode(ids[0, :30]))
print(tokenizer.decode(masked[0, :30]))

# %% [markdown]
# ### Two encoders
#
# BERT's head for words is one layer, followed by the encoder's own table of word vectors. The score of a word is the dot product of its
# vector with the output of that layer. The bundled MiniLM has no such head, because it was trained by distillation and then to compare
# sentences. So its head is initialised at random, and the library says so.
#
# This part is a demonstration of the mechanics, with one seed. Two encoders are trained on the same reviews: the bundled one with new
# heads, and a small one from random weights. On the fast profile the bundled one keeps only its two lowest layers, to save time. The two
# also differ in width (384 and 128), in learning rates, and in the number of epochs (two and three).

# %%
import warnings

from mmlkit.bert import BertConfig, BertModel
from mmlkit.training import PretrainingHeads, load_pretraining_heads

shape = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
config = BertConfig(**shape, vocab_size=pretrained.config.vocab_size)
with warnings.catch_warnings(record=True) as caught, seeded(seed, device):
    warnings.simplefilter("always")
    lower = load_pretrained(size.model, num_layers=2 if profile == "fast" else None)[0]
    bundled = lower.to(device), load_pretraining_heads(size.model, seed=seed).to(device)
    small = BertModel(config).to(device), PretrainingHeads(config).to(device)
learners = {size.model: bundled, "small": small}
fresh = [str(one.message) for one in caught if "cls." in str(one.message)]
print(*fresh or [f"{size.model} has heads of its own"])

# %% [markdown]
# The test is the loss on held-out reviews. The baseline predicts every word by its frequency in the training reviews, without the words
# around it. It counts *all* training reviews, and the encoders of the fast profile see 80 of them. For the second objective the baseline
# is guessing, $\ln 2$.
#
# **Predict before you run.** Which of the two encoders gets below the baseline on held-out words? And does either learn which sentence
# follows?

# %%
from mmlkit.training import next_sentence_pairs, pretrain, pretraining_batch, pretraining_loss

pairs = next_sentence_pairs(texts["dev"][:12], seed=seed)
held = pretraining_batch(tokenizer, pairs, seed=seed).to(device)
options = dict(tokenizer=tokenizer, seed=seed, max_length=64)
pace = dict(lr=5e-4, head_lr=1e-2) if fresh else dict(lr=5e-5)  # trained heads need small steps


@torch.no_grad()
def tested(encoder, heads):
    """Both losses on the held-out reviews."""
    loss = pretraining_loss(encoder.eval(), heads.eval(), held)
    return loss.words.item(), loss.next_sentence.item()


before = tested(*bundled)

# %% tags=["answer"] jupyter={"outputs_hidden": true}
train = texts["train"][:reviews]
curves = {size.model: pretrain(*bundled, train, epochs=2, **pace, **options)}
curves["small"] = pretrain(*small, train, epochs=3, lr=1e-3, **options)
counts = torch.bincount(ids[0], minlength=len(tokenizer)).double() + 0.01
rates = -(counts / counts.sum()).log()
guesses = rates[held.labels[held.labels >= 0].cpu()].mean().item(), np.log(2)
after = {name: tested(*one) for name, one in learners.items()}
below = [[n for n, loss in after.items() if loss[i] < guesses[i] - 0.02] for i in (0, 1)]
words, follows = (", ".join(one) or "neither" for one in below)
print(f"Answer: on held-out words {words}; on the next sentence {follows}.")

# %%
found = {f"{size.model}, before": before, **{f"{name}, after": one for name, one in after.items()}}
parts = ["masked words", "next sentence"]
losses_of = pd.DataFrame({**found, "baseline": guesses}, index=parts).T
for curve in curves.values():
    start, end = curve["words"].iloc[0], curve["words"].tail(8).mean()
    assert end < start - 1 or start < 5, "the loss should fall, unless the head is trained"
losses_of.round(3)

# %%
plots.pretraining(curves, guesses)
plt.show()

# %% [markdown]
# *The training loss on masked words falls below the baseline for both encoders (left). The loss on the next sentence rises at first and
# ends near ln 2 = 0.693, the dotted line (right). The bands show one standard error of a mean over eight batches.*
#
# Compare the figure with the table: the dotted line on the left is the baseline on *held-out* reviews. The small encoder gets below it in
# *training*, but on held-out words it has 7.34 against 6.99. So it predicts worse than the word frequencies of all reviews. The bundled
# encoder reaches 5.91 on held-out words. Its pretrained layers are a likely reason. This run does not prove it, because the two encoders
# differ in size and settings too. The control is an encoder of the same size and settings with random weights.
#
# ### Filled gaps

# %%
from mmlkit.training import fill_mask

gaps = [
    "The film was _.",
    "The music is _, and so is the acting.",
    "The _ of this film is its end.",
]
gaps = [text.replace("_", tokenizer.mask_token) for text in gaps]
filled = {
    name: [" ".join(word for word, _ in fill_mask(*one, tokenizer, text)) for text in gaps]
    for name, one in learners.items()
}
pd.DataFrame(filled, index=gaps)

# %% [markdown]
# The small encoder gives the same frequent words for every gap, so it does not use the context. The bundled one uses it a little. For the
# last gap it proposes nouns such as *movie* and *film*. For the first two gaps most of its words do not fit.
#
# A released BERT has its own trained head, and it was trained on billions of words. The second objective did not improve in this run. One
# reason may be that the label of a pair is one bit, and a pair has many masked words.
#
# MT-DNN does not keep the word head. It keeps the encoder, which all its tasks share and train further.
#
# ## Exercises
#
# ### Exercise 1: the floor of a bounded score
#
# ● ○ ○ · 10 minutes
#
# A score lies between `low` and `high`, such as a cosine between −1 and 1. Give the lowest possible ranking loss of a query with `N`
# candidates.


# %%
def my_floor(N, gamma, low, high):
    """Return the lowest possible loss of one query."""
    ...


_ = checks.check_ranking_floor(my_floor)

# %% [markdown]
# <details><summary>Hint</summary>
#
# At best the answer has `high` and all $N - 1$ others have `low`. Divide numerator and denominator of Eq. 9 by $e^{\gamma \cdot high}$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return np.log(1 + (N - 1) * np.exp(-gamma * (high - low)))
# ```
#
# For a cosine with two candidates and $\gamma = 1$ this is 0.1269; with $\gamma = 10$ it is 2e-9.
#
# </details>

# %% [markdown]
# ### Exercise 2: the mean reciprocal rank
#
# ● ● ○ · 15 minutes
#
# Accuracy@1 counts only first places. The *mean reciprocal rank* gives 1 for the first place, 1/2 for the second, 1/3 for the third. Write
# it for a batch of queries. There are no ties.


# %%
def my_reciprocal_rank(scores, relevant, groups):
    """Return the mean of 1/rank of the answers; the arguments are those of by_hand."""
    ...


_ = checks.check_reciprocal_rank(my_reciprocal_rank)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The rank of an answer is 1 plus the number of candidates of its own query with a higher score. `scores.split(groups)` gives one tensor per
# query.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# parts = zip(scores.split(groups), relevant.split(groups))
# return sum(1 / (1 + (part > part[right == 1]).sum()) for part, right in parts) / len(groups)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 3: masked words
#
# ● ● ○ · 15 minutes
#
# Write BERT's rule. `drawn` says which words are to be predicted. `u` has a random number from 0 to 1 for each place, and `others` has a random
# word. Below 0.8 a drawn word becomes `mask`; from 0.8 to 0.9 it becomes the other word; from 0.9 it stays.


# %%
def my_masked_words(ids, drawn, u, others, mask):
    """Return what the encoder reads, and the labels (-100 where nothing is asked), both [T]."""
    ...


_ = checks.check_masked_words(my_masked_words)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.where(condition, a, b)` chooses place by place. A drawn word that stays still has a label.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# masked = torch.where(drawn & (u < 0.9), others, ids)
# masked[drawn & (u < 0.8)] = mask
# return masked, torch.where(drawn, ids, -100)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 4: the pull by hand
#
# ● ● ● · 20 minutes
#
# Derive the pull $-dL/dm$ of the loss with Eq. 5's sigmoid and the log, for two candidates at $\pm m/2$ and any $\gamma$. Use `math`, not
# autograd.


# %%
def my_pull(m, gamma):
    """Return -dL/dm as a number."""
    ...


_ = checks.check_loss_pull(my_pull)

# %% [markdown]
# <details><summary>Hint</summary>
#
# $\sigma(m/2) - \sigma(-m/2) = \tanh(m/4)$, so $L = \log(1 + e^{-\gamma \tanh(m/4)})$. The derivative of $\tanh(m/4)$ is
# $(1 - \tanh^2(m/4))/4$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import math
# t = math.tanh(m / 4)
# return gamma * (1 - t * t) / 4 / (1 + math.exp(gamma * t))
# ```
#
# At $m = 0$ and $\gamma = 1$ it is $\tfrac14 \cdot \tfrac12 = 0.125$. For large $|m|$ the factor $1 - t^2$ goes to 0, whatever $\gamma$ is.
#
# </details>
#
# ## If it goes wrong
#
# - *"... queries cannot be ranked"*: the rows were cut with `limit=`, which splits queries, or each question has one candidate. Load the whole set, or classify.
# - *The ranking loss stays above 0.3133*: the head has `score_activation="sigmoid"`, with $\gamma = 1$ and two candidates. This is its floor.
# - *The word loss starts above 10*: a new head guesses among 30,522 words, and $\ln 30522 = 10.3$. It should fall within a few steps.
#
# ## Takeaways
#
# - The ranking loss is a softmax over the candidates of one query. It needs a log, and scores without a sigmoid.
# - A bounded score gives the loss a floor and weakens its gradient. At $m = -6$ the pull of the literal equations is about a hundred times weaker.
# - The model of 2015 counts letter trigrams and ranks 58.5 % of the mini questions correctly. The cosine of MiniLM, without training here, ranks 82 %.
# - In one run on 80 reviews, a pretrained encoder predicts held-out masked words better than word frequencies do. A small new encoder does not, and neither learns which sentence follows.
#
# ## References
#
# Liu, He, Chen and Gao (2019), *Multi-Task Deep Neural Networks for Natural Language Understanding* (first arXiv version). Liu et al. (2015),
# *Representation Learning Using Multi-Task Deep Neural Networks for Semantic Classification and Information Retrieval*. Baldrati and
# Berti, *Multi-Task Deep Neural Networks for Natural Language Understanding* (slides). Devlin et al. (2019), *BERT*. Wang et al. (2020),
# *MiniLM: Deep Self-Attention Distillation*. Wang et al. (2019), GLUE.
#
# Before: [07 One encoder, many tasks](07_mtdnn_san.ipynb). Next: [09 A new domain with few
# labels](09_domain_adaptation.ipynb).
