"""Twenty PyTorch networks, written as their users write them: small in width, whole in structure."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

# ---- images


def conv_bn(inputs, outputs, kernel=3, stride=1, groups=1, activation=nn.ReLU):
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation(inplace=True)] if activation else []))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = conv_bn(inputs, outputs, 1, stride, activation=None)

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, classes=10, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        for i in range(4):
            stride = 1 if i == 0 else 2
            blocks = BasicBlock(sizes[i], sizes[i + 1], stride), BasicBlock(sizes[i + 1], sizes[i + 1])
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(sizes[-1], classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class SqueezeExcitation(nn.Module):
    def __init__(self, channels, squeezed, scale=nn.Sigmoid):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.scale = scale()

    def forward(self, x):
        y = F.adaptive_avg_pool2d(x, 1)
        return x * self.scale(self.fc2(F.relu(self.fc1(y))))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, expanded, outputs, kernel, stride, activation, scale):
        super().__init__()
        self.use_residual = stride == 1 and inputs == outputs
        self.block = nn.Sequential(
            conv_bn(inputs, expanded, 1, activation=activation),
            conv_bn(expanded, expanded, kernel, stride, groups=expanded, activation=activation),
            SqueezeExcitation(expanded, max(expanded // 4, 4), scale),
            conv_bn(expanded, outputs, 1, activation=None),
        )

    def forward(self, x):
        return x + self.block(x) if self.use_residual else self.block(x)


class MobileNetV3(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(3, 8, stride=2, activation=nn.Hardswish),
            InvertedResidual(8, 16, 8, 3, 1, nn.ReLU, nn.Hardsigmoid),
            InvertedResidual(8, 32, 16, 5, 2, nn.Hardswish, nn.Hardsigmoid),
            InvertedResidual(16, 48, 16, 5, 1, nn.Hardswish, nn.Hardsigmoid),
            conv_bn(16, 48, 1, activation=nn.Hardswish),
        )
        self.classifier = nn.Sequential(
            nn.Linear(48, 64), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(64, classes)
        )

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


def efficientnet():
    return nn.Sequential(
        conv_bn(3, 8, stride=2, activation=nn.SiLU),
        InvertedResidual(8, 8, 8, 3, 1, nn.SiLU, nn.Sigmoid),
        InvertedResidual(8, 48, 16, 3, 2, nn.SiLU, nn.Sigmoid),
        InvertedResidual(16, 96, 16, 5, 1, nn.SiLU, nn.Sigmoid),
        conv_bn(16, 64, 1, activation=nn.SiLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    )


def vgg():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2, 2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2, 2)),
        *(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(True), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(True)),
        nn.AdaptiveAvgPool2d((3, 3)),
        nn.Flatten(),
        *(nn.Linear(144, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 10)),
    )


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features):
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(F.relu(self.norm2(x)))


class DenseNet(nn.Module):
    def __init__(self, growth=6, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1, bias=False)
        self.block1 = nn.ModuleList(DenseLayer(12 + i * growth, growth) for i in range(3))
        self.transition = nn.Sequential(
            nn.BatchNorm2d(30), nn.ReLU(), nn.Conv2d(30, 15, 1, bias=False), nn.AvgPool2d(2)
        )
        self.block2 = nn.ModuleList(DenseLayer(15 + i * growth, growth) for i in range(3))
        self.norm, self.classifier = nn.BatchNorm2d(33), nn.Linear(33, classes)

    def forward(self, x):
        x = self.transition(self.dense(self.block1, self.stem(x)))
        x = F.relu(self.norm(self.dense(self.block2, x)), inplace=True)
        return self.classifier(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))

    def dense(self, block, x):
        features = [x]
        for layer in block:
            features.append(layer(features))
        return torch.cat(features, 1)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


def convnext():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 4, 4), LayerNorm2d(8, eps=1e-6), ConvNeXtBlock(8), ConvNeXtBlock(8)),
        *(LayerNorm2d(8, eps=1e-6), nn.Conv2d(8, 16, 2, 2), ConvNeXtBlock(16)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 10)),
    )


class ViT(nn.Module):
    def __init__(self, image=32, patch=8, dim=32, heads=4, depth=2, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (image // patch) ** 2 + 1, dim))
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(dim),
                    "attention": nn.MultiheadAttention(dim, heads, batch_first=True),
                    "norm2": nn.LayerNorm(dim),
                    "mlp": nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim)),
                }
            )
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            y = block["norm1"](x)
            x = x + block["attention"](y, y, y, need_weights=False)[0]
            x = x + block["mlp"](block["norm2"](x))
        return self.head(self.norm(x)[:, 0])


class WindowAttention(nn.Module):
    """Swin's: windows of 4 x 4, shifted, with a table of relative positions."""

    def __init__(self, dim, heads, window, shift, size):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.norm, self.qkv, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.table = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = grid[:, :, None] - grid[:, None, :] + window - 1
        self.register_buffer("index", relative[0] * (2 * window - 1) + relative[1])
        regions = torch.zeros(1, size, size, 1)
        parts = (slice(0, -window), slice(-window, -shift), slice(-shift, None)) if shift else (slice(0, None),)
        for i, rows in enumerate(parts):
            for j, columns in enumerate(parts):
                regions[:, rows, columns] = i * len(parts) + j
        regions = self.split(regions).squeeze(-1)
        mask = regions[:, None, :] - regions[:, :, None]
        self.register_buffer("mask", mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0))

    def split(self, x):
        b, h, w, c = x.shape
        m = self.window
        return x.view(b, h // m, m, w // m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, m * m, c)

    def forward(self, x):
        b, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        q, k, v = (
            self.qkv(self.split(y)).reshape(-1, self.window**2, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        )
        scores = q * (c // self.heads) ** -0.5 @ k.transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(self.window**2, self.window**2, -1).permute(2, 0, 1)
        scores = (scores + bias.unsqueeze(0)).view(b, -1, self.heads, self.window**2, self.window**2)
        scores = (scores + self.mask[:, None]).flatten(0, 1)
        y = self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, self.window**2, c))
        m = self.window
        y = y.view(b, h // m, w // m, m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))


class Swin(nn.Module):
    def __init__(self, dim=16, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, 4)
        self.blocks = nn.Sequential(WindowAttention(dim, 2, 4, 0, 8), WindowAttention(dim, 2, 4, 2, 8))
        self.merge, self.head = nn.Linear(4 * dim, 2 * dim, bias=False), nn.Linear(2 * dim, classes)

    def forward(self, x):
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return self.head(self.merge(x).mean((1, 2)))


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1, self.down2 = self.double(3, width), self.double(width, 2 * width)
        self.bottom = self.double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.decode2 = self.double(4 * width, 2 * width)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.decode1, self.out = self.double(3 * width, width), nn.Conv2d(width, 1, 1)

    def double(self, inputs, outputs):
        return nn.Sequential(conv_bn(inputs, outputs), conv_bn(outputs, outputs))

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.up2(self.bottom(F.max_pool2d(second, 2)))
        x = self.decode2(torch.cat([second, x], dim=1))
        return self.out(self.decode1(torch.cat([first, self.up1(x)], dim=1))).flatten(1)


class Mixer(nn.Module):
    def __init__(self, patches=16, dim=24, classes=10):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(4))
        self.tokens = nn.ModuleList(self.mlp(patches, 32) for _ in range(2))
        self.channels = nn.ModuleList(self.mlp(dim, 48) for _ in range(2))
        self.head = nn.Linear(dim, classes)

    def mlp(self, size, hidden):
        return nn.Sequential(nn.Linear(size, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, size))

    def forward(self, x):
        x = self.embed(x).flatten(2).mT
        for i, (tokens, channels) in enumerate(zip(self.tokens, self.channels)):
            x = x + tokens(self.norms[2 * i](x).mT).mT
            x = x + channels(self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


def group_norm():
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ELU()),
        *(nn.Conv2d(16, 16, 3, 2, 1, groups=4), nn.InstanceNorm2d(16, affine=True), nn.LeakyReLU(0.1)),
        *(nn.Conv2d(16, 16, 3, padding=2, dilation=2, padding_mode="zeros"), nn.GroupNorm(1, 16), nn.PReLU(16)),
        *(nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.Flatten(), nn.Linear(16 * 9 * 9, 10)),
    )


# ---- sequences


class LSTMClassifier(nn.Module):
    def __init__(self, vocabulary=50, dim=12, hidden=16, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, hidden, num_layers=2, bidirectional=True, batch_first=True, dropout=0.3)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, tokens):
        _, (hidden, _) = self.lstm(self.embedding(tokens))
        return self.head(torch.cat([hidden[-2], hidden[-1]], dim=1))


class GRUClassifier(nn.Module):
    def __init__(self, inputs=5, hidden=16, classes=3):
        super().__init__()
        self.gru, self.head = nn.GRU(inputs, hidden, batch_first=True), nn.Linear(hidden, classes)

    def forward(self, x):
        states, _ = self.gru(x)
        return self.head(states[:, -1])


class TransformerClassifier(nn.Module):
    def __init__(self, vocabulary=50, dim=16, length=12, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        position = torch.arange(length)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(1e4) / dim))
        table = torch.zeros(1, length, dim)
        table[0, :, 0::2], table[0, :, 1::2] = torch.sin(position), torch.cos(position)
        self.register_buffer("table", table)
        layer = nn.TransformerEncoderLayer(dim, 4, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        mask = tokens == 0
        x = self.embedding(tokens) * math.sqrt(16) + self.table[:, : tokens.shape[1]]
        x = self.encoder(x, src_key_padding_mask=mask)
        x = x.masked_fill(mask[..., None], 0.0)
        return self.head(x.sum(1) / (~mask).sum(1, keepdim=True).clamp(min=1))


class TiedLanguageModel(nn.Module):
    """The next token's logits from a window of tokens; the head is the embedding."""

    def __init__(self, vocabulary=40, dim=16, heads=2, length=10):
        super().__init__()
        self.embed, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.qkv, self.proj, self.norm = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.LayerNorm(dim)
        self.decoder = nn.Linear(dim, vocabulary, bias=False)
        self.decoder.weight = self.embed.weight
        self.heads = heads

    def forward(self, tokens):
        b, t = tokens.size()
        x = self.embed(tokens) + self.places(torch.arange(t, device=tokens.device))
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, -1))
        return self.decoder(x[:, -1])


# ---- graphs and tables


class GCN(nn.Module):
    def __init__(self, adjacency, inputs=4, hidden=8, classes=3):
        super().__init__()
        adjacency = adjacency + torch.eye(len(adjacency))
        scale = adjacency.sum(1).rsqrt()
        self.register_buffer("adjacency", scale[:, None] * adjacency * scale)
        self.first, self.second = nn.Linear(inputs, hidden, bias=False), nn.Linear(hidden, classes)

    def forward(self, x):
        x = torch.relu(self.adjacency @ self.first(x))
        return torch.einsum("ij,bjk->bik", self.adjacency, self.second(x)).amax(dim=1)


class TabularResNet(nn.Module):
    def __init__(self, inputs=8, dim=16, blocks=2):
        super().__init__()
        self.first = nn.Linear(inputs, dim)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm1d(dim), nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Dropout(0.2), nn.Linear(2 * dim, dim)
            )
            for _ in range(blocks)
        )
        self.head = nn.Sequential(nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class FTTransformer(nn.Module):
    """Numbers and categories as tokens, then attention. Gorishniy et al. 2021."""

    def __init__(self, numbers=5, categories=(3, 4), dim=16):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(numbers, dim)), nn.Parameter(torch.randn(numbers, dim))
        self.register_buffer("offsets", torch.tensor([0, *categories[:-1]]).cumsum(0))
        self.categories, self.cls = nn.Embedding(sum(categories), dim), nn.Parameter(torch.randn(dim))
        layers = (nn.TransformerEncoderLayer(dim, 4, 32, activation="gelu", batch_first=True) for _ in range(2))
        self.encoder, self.head = nn.Sequential(*layers), nn.Sequential(nn.LayerNorm(dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, numbers, categories):
        tokens = [
            self.cls.expand(len(numbers), 1, -1),
            numbers[..., None] * self.weight + self.bias,
            self.categories(categories + self.offsets),
        ]
        return self.head(self.encoder(torch.cat(tokens, 1))[:, 0])


def layer_norm():
    return nn.Sequential(
        *(nn.Linear(6, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 32), nn.RMSNorm(32), nn.Softplus()),
        nn.Linear(32, 2),
    )


def weight_normed():
    return nn.Sequential(weight_norm(nn.Linear(6, 32)), nn.Tanh(), weight_norm(nn.Linear(32, 2)))


# ---- all of them, each with an example


def made(make):
    """The module in general position: statistics of data, weights that are neither 0 nor 1."""
    module = make()
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.momentum = None  # the mean over the batches that it sees
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def settled(make, x):
    """As after training: norms have seen data."""
    module = made(make)
    with torch.no_grad():
        for _ in range(3):
            noisy = (part + 0.5 * torch.randn_like(part) if part.is_floating_point() else part for part in x)
            module.train()(*noisy)
    return module


def examples(rows=4):
    """name -> (a function that makes the module, the example)."""
    images, tokens, table = torch.randn(rows, 3, 32, 32), torch.randint(1, 40, (rows, 10)), torch.randn(rows, 6)
    tokens[0, 6:] = 0
    ring = torch.roll(torch.eye(7), 1, 0)
    categories = torch.stack([torch.randint(0, 3, (rows,)), torch.randint(0, 4, (rows,))], 1)
    return {
        "resnet18": (ResNet18, images),
        "mobilenet_v3": (MobileNetV3, images),
        "efficientnet": (efficientnet, images),
        "vgg": (vgg, images),
        "densenet": (DenseNet, images),
        "convnext": (convnext, images),
        "vit": (ViT, images),
        "swin": (Swin, images),
        "unet": (UNet, images),
        "lstm": (LSTMClassifier, tokens),
        "gru": (GRUClassifier, torch.randn(rows, 9, 5)),
        "transformer": (TransformerClassifier, tokens),
        "mixer": (Mixer, images),
        "gcn": (lambda: GCN(ring + ring.T), torch.randn(rows, 7, 4)),
        "tabular_resnet": (TabularResNet, torch.randn(rows, 8)),
        "ft_transformer": (FTTransformer, (torch.randn(rows, 5), categories)),
        "group_norm": (group_norm, images),
        "layer_norm": (layer_norm, table),
        "weight_norm": (weight_normed, table),
        "tied_embeddings": (TiedLanguageModel, tokens),
    }
