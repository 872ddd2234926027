"""denoising-diffusion-pytorch's Trainer (accelerate): photographs by as many workers as CPUs; checkpoints."""

# repo: denoising-diffusion-pytorch
# needs: torchvision accelerate einops ema_pytorch

import layouts
import other

here = other.checkout()
layouts.pictures(here / "photos", 120, (512, 384))
(here / "train.py").write_text(
    """
from denoising_diffusion_pytorch import Unet, GaussianDiffusion, Trainer

if __name__ == "__main__":
    model = Unet(dim=8, dim_mults=(1, 2), flash_attn=False)
    diffusion = GaussianDiffusion(model, image_size=32, timesteps=50, sampling_timesteps=5)
    trainer = Trainer(
        diffusion, "photos", train_batch_size=8, train_num_steps=30, gradient_accumulate_every=2,
        save_and_sample_every=15, num_samples=4, calculate_fid=False,
    )
    trainer.train()
"""
)
other.run(here / "train.py")
other.answer(["decode", "transform", "cpu_wait"], ["TH2", "CPU1", "CPU2", "PF1"])
