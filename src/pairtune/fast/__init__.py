"""The training step without padding, and every private name of another package that pairtune uses:

| hook | of | where | why |
| --- | --- | --- | --- |
| `config._attn_implementation`, for the time of a pass | transformers | `architectures.packed_attention` | the public setter checks and walks all modules: too slow for each step |
| `forward` and `compute_position_bias` of MPNet's attention | transformers | `attention.patch_mpnet` | it does not ask for an attention function |
| `compute_bias` of T5's attention | transformers | `attention.patch_t5` | the bias of the longest text, not of a whole row |
| `forward` of DeBERTa's attention, `get_rel_pos` and `get_attention_mask` of its encoder | transformers | `attention.patch_deberta` | it does not ask for an attention function, and computes for a whole row |
| `aten._flash_attention_forward` | torch | `attention._attend_flash` | the public one has no dropout |
| `forward` of the parts of layers | torch | `step.compiled` | compiled, and plain again for other batches |
| `_parameters` of modules | torch | `captured.Halves` | the same modules with bf16 copies |
| `_foreach_copy_`, `_foreach_zero_` | torch | `captured` | all parameters in a few kernels |
| `zero_grad` of the model | torch | `step.FastStep` | it looks for all parameters at each step |
| `_hf_peft_config_loaded`, `_weight_conversions` of a model | transformers | `encoders.adapters.merge_adapter` | it cannot merge an adapter by itself |
| `_name_or_path` of a config | transformers | `encoders.adapters` | an adapter names its encoder by it |
| `forward` of `Normalize` | sentence-transformers | `sbert.raw` | off while the model trains |
| `_save` of the trainer | sentence-transformers | `sbert.trainer.PairTrainer` | it writes a model card with each checkpoint |
| `_load_from_checkpoint` of the trainer | sentence-transformers | `sbert.trainer.PairTrainer` | it would load what stands beside an adapter anew |
| `_trial_id` of a trial | optuna | `tune.ledger` | the storage, which several machines share, knows trials by it |
| `_clip_grad_norm` of the trainer | transformers | `sbert.trainer.PairTrainer` | gradients are in one buffer; a method of the trainer can only be there |
"""  # noqa: E501
