"""Training dynamics of ν: how the path kernel turns to the labels while a network learns.

ν = yᵀ Ĥ⁻¹ y is the energy of the labels y in the inverse of the path kernel H, scaled to trace 1: small where the gates
suit the labels. It is followed through training beside the number of gates that flip.
"""

# %%
import copy
import os
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import neuralpath as npath

SMALL = "NEURALPATH_SMALL" in os.environ  # the tests run every example on little data

# %% Two classes with labels -1 and +1, and the squared loss, as in the papers' figure; there with MNIST's 4 and 7.
digits = npath.data.load("digits")
train = npath.data.binary_task(digits.train, negative=4, positive=7)
n_measured = 30 if SMALL else 200
x = train.images[:n_measured].double()

# %% Two networks: one learns the true labels, the other labels that are drawn at random. Both without biases.
coins = torch.randint(2, (len(train),), generator=torch.Generator().manual_seed(0)).float()
tasks = {"true labels": train, "random labels": npath.data.Split(train.images, 2 * coins - 1)}
config = npath.training.TrainingConfig(
    epochs=4 if SMALL else 60, loss="squared", optimizer=npath.training.Adam(lr=1e-3), train_metrics="evaluated"
)


def follow(task: npath.data.Split) -> tuple[list[float], npath.paths.GateSwitches, float]:
    """ν before training and after each epoch, the flips of gates, and the accuracy on the training set."""
    labels = task.labels[:n_measured].double()
    model = npath.nets.FC(
        (1, 8, 8), width=32 if SMALL else 100, depth=5, init=npath.nets.RandomSign(),
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    energies: list[float] = []
    recorder = npath.SwitchRecorder()

    def measure(moment: npath.training.TrainingMoment) -> None:
        # Gates in float32, as the network has them; the kernel of these gates in float64, since ν divides by its
        # smallest eigenvalues. A small jitter keeps near-duplicate digits from making it singular.
        gates = npath.recorded_gates(moment.model, task.images[:n_measured])
        kernel = npath.path_kernel(graph, x, gates1=gates, normalize=True)
        energies.append(float(npath.label_energy(kernel, labels, jitter=1e-6)))
        recorder.update(gates, epoch=moment.epoch)

    # The same architecture in float64: with gates that are given, only its structure is used.
    graph = npath.trace(copy.deepcopy(model).double(), x[:1])
    result = npath.training.train(model, task, None, config, hooks=[measure])
    return energies, recorder.switches(), result.last.train.accuracy


found = {name: follow(task) for name, task in tasks.items()}
for name, (energies, switches, accuracy) in found.items():
    print(f"{name}: {accuracy:.1%} of the training digits learnt")
    print(
        f"  label energy {energies[0]:.4g} before training, {min(energies):.4g} at its lowest, {energies[-1]:.4g} now"
    )
    first, last = float(switches.mean_fraction[0]), float(switches.mean_fraction[-1])
    print(f"  {first:.2%} of all gates flip in the first epoch, {last:.2%} in the last")

# %% ν against the epochs, and how many gates flip meanwhile.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for name, (energies, switches, _) in found.items():
    left.plot(energies, label=name)
    right.plot(switches.epochs, (100 * switches.mean_fraction).numpy(), label=name)
left.set(xlabel="epoch", ylabel=r"$\nu$, energy of the labels", yscale="log")
right.set(xlabel="epoch", ylabel="gates that flip in an epoch, %", yscale="log")
left.legend()
picture = Path("training_dynamics.png")
figure.savefig(picture, dpi=120)
print(f"picture: {picture}")
