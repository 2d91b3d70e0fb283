# trl_lora.py
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from stabexp.integrations.transformers import StabexpCallback

DIGITS = [str(digit) for digit in range(10)]


def tokenizer():
    made = Tokenizer(models.WordLevel({digit: int(digit) for digit in DIGITS}, unk_token="0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="0", eos_token="0")


def train(run, lr=5e-2):
    rows = (torch.arange(16) * torch.randint(1, 4, (256, 1))) % 10
    sizes = {"vocab_size": 10, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    arguments = SFTConfig(
        output_dir="out",
        max_length=16,
        max_steps=40,
        per_device_train_batch_size=16,
        learning_rate=lr,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    trainer = SFTTrainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Dataset.from_dict({"input_ids": rows.tolist()}),
        processing_class=tokenizer(),
        peft_config=LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True),
        callbacks=[StabexpCallback(run)],
    )
    trainer.train()
