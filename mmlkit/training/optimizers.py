"""The updates: AdamW as the CS224N handout writes it, torch's fused optimizers for real runs, and the learning rate's path.

Notebook 02 builds `AdamW` by hand and shows where it differs from torch's.
"""

import math

import torch

__all__ = ["AdamW", "Adamax", "learning_rate", "make_optimizer"]


class AdamW(torch.optim.Optimizer):
    """AdamW of the CS224N minBERT handout, after Kingma and Ba's efficient form (2015, end of section 2).

    m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  alpha_t = lr sqrt(1-b2^t) / (1-b1^t)
    theta = theta - alpha_t m / (sqrt(v) + eps);  theta = theta - lr weight_decay theta

    Two differences from torch.optim.AdamW: eps is added to the *uncorrected* sqrt(v), so it weighs more in early
    steps, by 1/sqrt(1-b2^t); and decay acts after the step, on the already moved theta, where torch decays first.
    Raises ValueError for a negative lr, eps or weight_decay, or betas outside [0, 1).
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True):
        if lr < 0 or eps < 0 or weight_decay < 0:
            raise ValueError(f"lr {lr}, eps {eps} and weight_decay {weight_decay} must not be negative.")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas {betas} must lie in [0, 1): they are shares of the old average.")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, correct_bias=correct_bias))

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every parameter that has a gradient; the others stay bit-identical."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for theta in group["params"]:
                if theta.grad is not None:
                    self._update(theta, theta.grad, group, self.state[theta])
        return loss

    @staticmethod
    def _update(theta, g, group, state):
        b1, b2 = group["betas"]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(theta), exp_avg_sq=torch.zeros_like(theta))
        state["step"] += 1
        t, m, v = state["step"], state["exp_avg"], state["exp_avg_sq"]
        m.mul_(b1).add_(g, alpha=1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        alpha = group["lr"]
        if group["correct_bias"]:
            alpha *= math.sqrt(1 - b2**t) / (1 - b1**t)
        theta.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-alpha)
        theta.sub_(theta, alpha=group["lr"] * group["weight_decay"])


class Adamax(torch.optim.Adamax):
    """torch's Adamax (Kingma and Ba 2015, section 7.1) with decoupled weight decay, as MT-DNN trains.

    theta = theta - lr weight_decay theta;  then Adamax's step without decay.

    torch.optim.Adamax adds weight_decay * theta to the gradient instead (L2). Its step is about lr whatever the size of the
    gradient, so a row that no batch touches would shrink by lr at every step.
    Takes the arguments of torch.optim.Adamax.
    """

    @torch.no_grad()
    def step(self, closure=None):
        """Update every parameter that has a gradient; the others stay bit-identical. Returns the closure's loss, if any."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        decays = [group["weight_decay"] for group in self.param_groups]
        for group in self.param_groups:
            for theta in group["params"]:
                if theta.grad is not None and group["weight_decay"]:
                    theta.mul_(1 - group["lr"] * group["weight_decay"])
            group["weight_decay"] = 0.0
        try:
            super().step()
        finally:
            for group, decay in zip(self.param_groups, decays):
                group["weight_decay"] = decay
        return loss


def make_optimizer(model, name="adamw", *, lr, head_lr=None, pal_lr=None, weight_decay=0.01):
    """An optimizer over the trainable parameters of a MultitaskModel.

    name: "adamw" (torch, fused), "adamax" (MT-DNN's, with decoupled decay), or "handout" (`AdamW` above). head_lr: the rate of
    everything outside the encoder, pal_lr: of what `add_pals` put into it, both lr by default; `fit` takes the result as
    its optimizer. weight_decay acts on matrices only, not on biases and LayerNorms.
    Each parameter group keeps its peak rate as "peak", for the schedule.
    Raises ValueError for an unknown name or when nothing is trainable.
    """
    makers = {"adamw": lambda groups: torch.optim.AdamW(groups, eps=1e-8, fused=True),
              "adamax": lambda groups: Adamax(groups, foreach=True),
              "handout": AdamW}
    if name not in makers:
        raise ValueError(f"optimizer {name!r} is not one of {list(makers)}.")
    groups = {}
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            own = pal_lr if key.startswith("encoder.pals.") else lr if key.startswith("encoder.") else head_lr
            peak = lr if own is None else own
            decay = 0.0 if parameter.dim() < 2 or key.endswith("bias") else weight_decay      # multiverse heads' biases are a table
            groups.setdefault((peak, decay), []).append(parameter)
    if not groups:
        raise ValueError("Every parameter of the model is frozen: there is nothing to train.")
    return makers[name]([dict(params=params, lr=peak, peak=peak, weight_decay=decay)
                         for (peak, decay), params in groups.items()])


def learning_rate(step, *, peak, warmup, total):
    """Linear up over `warmup` steps, then linear down to 0 at `total`; a pure function of the step, counted from 0."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * max(total - step, 0) / max(total - warmup, 1)

