"""What every setting means, in one line: the help of its flag."""

from otprune import models

MEANINGS = {
    "model": (
        f"One of {', '.join(models.names())}, torchvision:name, timm:name, "
        "or your own: module:function or file.py:function."
    ),
    "data": "cifar10, cifar100, digits, or a folder: a copy of a CIFAR, or images in train/ and val/. "
    "Implies a recipe: digits for digits, ilsvrc for a folder of images, or else cifar.",
    "hold_out": "Share of the training images to hold out of the training, for choices to be made on.",
    "image_size": "Width and height that images of a folder are cut to, in pixels; 224 if it is left out.",
    "strict": "Stop at an image that cannot be read, instead of naming it and leaving it out.",
    "training.epochs": "Epochs of training with sparsity.",
    "training.batch": "Images in a batch; processes that torchrun starts share it.",
    "training.rate": "Learning rate at the start.",
    "training.schedule": "How the rate falls: in steps, or along a cosine to zero at the end.",
    "training.decay_at": "Shares of the training after which the rate is divided by ten, if it falls in steps, "
    "separated by commas.",
    "training.lam": "λ, the strength of the L1 penalty on scaling factors.",
    "training.target_flops": "Let λ steer itself so that OT keeps this share of the FLOPs.",
    "training.momentum": "Nesterov momentum of SGD.",
    "training.weight_decay": "Weight decay of every parameter.",
    "training.label_smoothing": "Share of each label that is spread over all classes.",
    "training.proximal": "Apply the penalty as a soft threshold after each step, instead of by its gradient.",
    "training.penalized": "Batch norms to penalize and prune: all, or only those that nothing ties to another, as "
    "inside residual blocks; otprune inspect shows ties.",
    "training.augment": "Crop and mirror training images at random.",
    "training.cutout": "Side of a square to blank at a random place of every training image, in pixels.",
    "training.sync_batch_norm": "Let batch norms of several processes go by the whole batch, not by the share of each.",
    "training.seed": "Seed of the weights, the order of images and their augmentation.",
    "pruning.rule": "ot: optimal thresholds, layer by layer. ns: Network Slimming, one threshold for all.",
    "pruning.delta": "δ of OT: the share of a layer's squared scaling factors that is negligible.",
    "pruning.ratio": "Share that Network Slimming removes of the channels it may prune: of all batch norms, or of the "
    "untied ones with --penalized untied.",
    "pruning.max_layer_ratio": "Remove at most this share of a layer's channels.",
    "pruning.round_to": "Keep channel counts at multiples of this; GPUs are quicker with multiples of 16.",
    "pruning.calibration_images": "Training images that batch-norm statistics are re-estimated on.",
    "pruning.max_drop": "Take the smallest network that loses at most so many points on held-out images.",
    "pruning.flops": "Take a network with this share of the FLOPs.",
    "pruning.params": "Take a network with this share of the parameters.",
    "pruning.latency": "Take a network that needs at most this time for an image on this machine's CPU, such as 1.5ms.",
    "pruning.latency_runtime": "The runtime that latency is measured in: torch, onnxruntime or openvino.",
    "pruning.latency_threads": "The threads that latency is measured with.",
    "finetuning.epochs": "Epochs of fine-tuning.",
    "finetuning.rate": "Learning rate of fine-tuning at the start.",
    "finetuning.schedule": "Whether it stays constant, or falls along a cosine to zero at the end.",
    "finetuning.report_after": "Epochs of fine-tuning after which to measure as well, separated by commas.",
    "finetuning.distill": "Weight of the unpruned model's outputs beside the labels, from 0 to 1.",
    "finetuning.temperature": "Temperature of these outputs.",
}
