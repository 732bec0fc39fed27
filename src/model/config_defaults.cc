// SPDX-License-Identifier: Apache-2.0
//
// Made by scripts/config_defaults.py from transformers 5.17.0; do not edit.
#include "model/config_defaults.h"

#include <algorithm>

namespace headroom {
namespace {

// clang-format off
constexpr ConfigAttribute kCommon[] = {
    {"chunk_size_feed_forward", "i", "0"}, {"is_encoder_decoder", "b", "false"},
    {"num_labels", "i", "2"}, {"output_attentions", "b?", "false"},
    {"output_hidden_states", "b?", "false"}, {"problem_type", "s?", "null"},
};

constexpr ConfigAttribute kAlbert[] = {
    {"attention_probs_dropout_prob", "f", "0.0"}, {"classifier_dropout_prob", "f", "0.1"},
    {"embedding_size", "i", "128"}, {"hidden_act", "s", R"("gelu_new")"},
    {"hidden_dropout_prob", "f", "0.0"}, {"hidden_size", "i", "4096"},
    {"initializer_range", "f", "0.02"}, {"inner_group_num", "i", "1"},
    {"intermediate_size", "i", "16384"}, {"layer_norm_eps", "f", "1e-12"},
    {"max_position_embeddings", "i", "512"}, {"num_attention_heads", "i", "64"},
    {"num_hidden_groups", "i", "1"}, {"num_hidden_layers", "i", "12"}, {"pad_token_id", "i?", "0"},
    {"tie_word_embeddings", "b", "true"}, {"type_vocab_size", "i", "2"},
    {"vocab_size", "i", "30000"},
};
constexpr ConfigAttribute kBart[] = {
    {"activation_dropout", "f?", "0.0"}, {"activation_function", "s?", R"("gelu")"},
    {"attention_dropout", "f?", "0.0"}, {"classifier_dropout", "f?", "0.0"},
    {"d_model", "i?", "1024"}, {"decoder_attention_heads", "i?", "16"},
    {"decoder_ffn_dim", "i?", "4096"}, {"decoder_layerdrop", "f?", "0.0"},
    {"decoder_layers", "i?", "12"}, {"dropout", "f?", "0.1"},
    {"encoder_attention_heads", "i?", "16"}, {"encoder_ffn_dim", "i?", "4096"},
    {"encoder_layerdrop", "f?", "0.0"}, {"encoder_layers", "i?", "12"}, {"init_std", "f?", "0.02"},
    {"is_decoder", "b?", "false"}, {"is_encoder_decoder", "b?", "true"},
    {"max_position_embeddings", "i", "1024"}, {"num_labels", "i", "3"}, {"pad_token_id", "i?", "1"},
    {"scale_embedding", "b?", "false"}, {"tie_word_embeddings", "b", "true"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "50265"},
};
constexpr ConfigAlias kBartAliases[] = {
    {"hidden_size", "d_model"},
    {"num_attention_heads", "encoder_attention_heads"},
    {"num_hidden_layers", "encoder_layers"},
};
constexpr ConfigAttribute kBert[] = {
    {"add_cross_attention", "b", "false"}, {"attention_probs_dropout_prob", "f", "0.1"},
    {"classifier_dropout", "f?", "null"}, {"hidden_act", "s", R"("gelu")"},
    {"hidden_dropout_prob", "f", "0.1"}, {"hidden_size", "i", "768"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "3072"},
    {"is_decoder", "b", "false"}, {"layer_norm_eps", "f", "1e-12"},
    {"max_position_embeddings", "i", "512"}, {"num_attention_heads", "i", "12"},
    {"num_hidden_layers", "i", "12"}, {"pad_token_id", "i?", "0"},
    {"tie_word_embeddings", "b", "true"}, {"type_vocab_size", "i", "2"}, {"use_cache", "b", "true"},
    {"vocab_size", "i", "30522"},
};
constexpr ConfigAttribute kBloom[] = {
    {"apply_residual_connection_post_layernorm", "b", "false"}, {"attention_dropout", "f", "0.0"},
    {"hidden_dropout", "f", "0.0"}, {"hidden_size", "i", "64"}, {"initializer_range", "f", "0.02"},
    {"layer_norm_epsilon", "f", "1e-05"}, {"n_embed", "i?", "null"}, {"n_head", "i", "8"},
    {"n_layer", "i", "2"}, {"pad_token_id", "i?", "null"}, {"pretraining_tp", "i", "1"},
    {"slow_but_exact", "b", "false"}, {"tie_word_embeddings", "b", "true"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "250880"},
};
constexpr ConfigAlias kBloomAliases[] = {
    {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},
};
constexpr ConfigAttribute kCamembert[] = {
    {"add_cross_attention", "b", "false"}, {"attention_probs_dropout_prob", "f", "0.1"},
    {"classifier_dropout", "f?", "null"}, {"hidden_act", "s", R"("gelu")"},
    {"hidden_dropout_prob", "f", "0.1"}, {"hidden_size", "i", "768"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "3072"},
    {"is_decoder", "b", "false"}, {"layer_norm_eps", "f", "1e-12"},
    {"max_position_embeddings", "i", "512"}, {"num_attention_heads", "i", "12"},
    {"num_hidden_layers", "i", "12"}, {"pad_token_id", "i?", "1"},
    {"tie_word_embeddings", "b", "true"}, {"type_vocab_size", "i", "2"}, {"use_cache", "b", "true"},
    {"vocab_size", "i", "30522"},
};
constexpr ConfigAttribute kCodegen[] = {
    {"activation_function", "s", R"("gelu_new")"}, {"attn_pdrop", "f", "0.0"},
    {"embd_pdrop", "f", "0.0"}, {"initializer_range", "f", "0.02"},
    {"layer_norm_epsilon", "f", "1e-05"}, {"n_ctx", "i", "2048"}, {"n_embd", "i", "4096"},
    {"n_head", "i", "16"}, {"n_inner", "i?", "null"}, {"n_layer", "i", "28"},
    {"n_positions", "i", "2048"}, {"resid_pdrop", "f", "0.0"}, {"rotary_dim", "i", "64"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "50400"},
};
constexpr ConfigAlias kCodegenAliases[] = {
    {"hidden_size", "n_embd"},
    {"max_position_embeddings", "n_positions"},
    {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},
};
constexpr ConfigAttribute kCohere[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f?", "0.0"},
    {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "8192"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "22528"},
    {"layer_norm_eps", "f?", "1e-05"}, {"logit_scale", "f?", "0.0625"},
    {"max_position_embeddings", "i", "8192"}, {"num_attention_heads", "i", "64"},
    {"num_hidden_layers", "i", "40"}, {"num_key_value_heads", "i?", "null"},
    {"pad_token_id", "i?", "0"}, {"rope_parameters", "o?", "null"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"},
    {"use_qk_norm", "b?", "false"}, {"vocab_size", "i", "256000"},
};
constexpr ConfigAttribute kDeberta[] = {
    {"attention_head_size", "i?", "null"}, {"attention_probs_dropout_prob", "f", "0.1"},
    {"cls_dropout", "f?", "null"}, {"embedding_size", "i?", "null"},
    {"hidden_act", "s", R"("gelu")"}, {"hidden_dropout_prob", "f", "0.1"},
    {"hidden_size", "i", "768"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "3072"}, {"layer_norm_eps", "f", "1e-07"}, {"legacy", "b", "true"},
    {"max_position_embeddings", "i", "512"}, {"max_relative_positions", "i", "-1"},
    {"num_attention_heads", "i", "12"}, {"num_hidden_layers", "i", "12"},
    {"pad_token_id", "i?", "0"}, {"pooler_dropout", "f", "0.0"},
    {"pooler_hidden_act", "s", R"("gelu")"}, {"pooler_hidden_size", "i?", "null"},
    {"pos_att_type", "sS?", "null"}, {"position_biased_input", "b", "true"},
    {"relative_attention", "b", "false"}, {"talking_head", "b", "false"},
    {"tie_word_embeddings", "b", "true"}, {"type_vocab_size", "i", "0"},
    {"vocab_size", "i", "50265"},
};
constexpr ConfigAttribute kDebertaV2[] = {
    {"attention_head_size", "i?", "null"}, {"attention_probs_dropout_prob", "f", "0.1"},
    {"cls_dropout", "f?", "null"}, {"conv_act", "s", R"("tanh")"}, {"conv_groups", "i", "1"},
    {"conv_kernel_size", "i", "0"}, {"embedding_size", "i?", "null"},
    {"hidden_act", "s", R"("gelu")"}, {"hidden_dropout_prob", "f", "0.1"},
    {"hidden_size", "i", "1536"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "6144"}, {"layer_norm_eps", "f", "1e-07"}, {"legacy", "b", "true"},
    {"max_position_embeddings", "i", "512"}, {"max_relative_positions", "i", "-1"},
    {"norm_rel_ebd", "s", R"("none")"}, {"num_attention_heads", "i", "24"},
    {"num_hidden_layers", "i", "24"}, {"pad_token_id", "i?", "0"}, {"pooler_dropout", "f", "0.0"},
    {"pooler_hidden_act", "s", R"("gelu")"}, {"pooler_hidden_size", "i?", "null"},
    {"pos_att_type", "sS?", "null"}, {"position_biased_input", "b", "true"},
    {"position_buckets", "i", "-1"}, {"relative_attention", "b", "false"},
    {"share_att_key", "b", "false"}, {"tie_word_embeddings", "b", "true"},
    {"type_vocab_size", "i", "0"}, {"vocab_size", "i", "128100"},
};
constexpr ConfigAttribute kDeit[] = {
    {"attention_probs_dropout_prob", "f", "0.0"}, {"encoder_stride", "i", "16"},
    {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("gelu")"},
    {"hidden_dropout_prob", "f", "0.0"}, {"hidden_size", "i", "768"}, {"image_size", "i", "224"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "3072"},
    {"layer_norm_eps", "f", "1e-12"}, {"num_attention_heads", "i", "12"},
    {"num_channels", "i", "3"}, {"num_hidden_layers", "i", "12"}, {"patch_size", "i", "16"},
    {"pooler_act", "s", R"("tanh")"}, {"pooler_output_size", "i?", "null"},
    {"qkv_bias", "b", "true"}, {"tie_word_embeddings", "b", "false"},
};
constexpr ConfigAttribute kDistilbert[] = {
    {"activation", "s", R"("gelu")"}, {"attention_dropout", "f", "0.1"}, {"dim", "i", "768"},
    {"dropout", "f", "0.1"}, {"hidden_dim", "i", "3072"}, {"initializer_range", "f", "0.02"},
    {"max_position_embeddings", "i", "512"}, {"n_heads", "i", "12"}, {"n_layers", "i", "6"},
    {"pad_token_id", "i?", "0"}, {"qa_dropout", "f", "0.1"}, {"seq_classif_dropout", "f", "0.2"},
    {"sinusoidal_pos_embds", "b", "false"}, {"tie_word_embeddings", "b", "true"},
    {"vocab_size", "i", "30522"},
};
constexpr ConfigAlias kDistilbertAliases[] = {
    {"hidden_size", "dim"},
    {"num_attention_heads", "n_heads"},
    {"num_hidden_layers", "n_layers"},
};
constexpr ConfigAttribute kElectra[] = {
    {"add_cross_attention", "b", "false"}, {"attention_probs_dropout_prob", "f", "0.1"},
    {"classifier_dropout", "f?", "null"}, {"embedding_size", "i", "128"},
    {"hidden_act", "s", R"("gelu")"}, {"hidden_dropout_prob", "f", "0.1"},
    {"hidden_size", "i", "256"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "1024"}, {"is_decoder", "b", "false"},
    {"layer_norm_eps", "f", "1e-12"}, {"max_position_embeddings", "i", "512"},
    {"num_attention_heads", "i", "4"}, {"num_hidden_layers", "i", "12"},
    {"pad_token_id", "i?", "0"}, {"summary_activation", "s", R"("gelu")"},
    {"summary_last_dropout", "f", "0.1"}, {"summary_type", "s", R"("first")"},
    {"summary_use_proj", "b", "true"}, {"tie_word_embeddings", "b", "true"},
    {"type_vocab_size", "i", "2"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "30522"},
};
constexpr ConfigAttribute kFalcon[] = {
    {"activation", "s?", R"("gelu")"}, {"alibi", "b?", "false"}, {"attention_dropout", "f?", "0.0"},
    {"bias", "b?", "false"}, {"classifier_dropout", "f?", "null"},
    {"ffn_hidden_size", "i?", "null"}, {"head_dim", "i?", "null"}, {"hidden_dropout", "f?", "0.0"},
    {"hidden_size", "i", "4544"}, {"initializer_range", "f", "0.02"},
    {"layer_norm_epsilon", "f?", "1e-05"}, {"max_position_embeddings", "i", "2048"},
    {"multi_query", "b?", "true"}, {"n_embed", "i?", "null"},
    {"new_decoder_architecture", "b?", "false"}, {"num_attention_heads", "i", "71"},
    {"num_hidden_layers", "i", "32"}, {"num_kv_heads", "i?", "null"},
    {"num_ln_in_parallel_attn", "i?", "null"}, {"pad_token_id", "i?", "null"},
    {"parallel_attn", "b?", "true"}, {"rope_parameters", "o?", "null"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "65024"},
};
constexpr ConfigAttribute kGemma[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f", "0.0"}, {"head_dim", "i", "256"},
    {"hidden_act", "s", R"("gelu_pytorch_tanh")"}, {"hidden_size", "i", "3072"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "24576"},
    {"max_position_embeddings", "i", "8192"}, {"num_attention_heads", "i", "16"},
    {"num_hidden_layers", "i", "28"}, {"num_key_value_heads", "i", "16"},
    {"pad_token_id", "i?", "0"}, {"rms_norm_eps", "f", "1e-06"}, {"rope_parameters", "o?", "null"},
    {"tie_word_embeddings", "b", "true"}, {"use_bidirectional_attention", "b?", "null"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "256000"},
};
constexpr ConfigAttribute kGemma2[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f?", "0.0"},
    {"attn_logit_softcapping", "f?", "50.0"}, {"final_logit_softcapping", "f?", "30.0"},
    {"head_dim", "i", "256"}, {"hidden_activation", "s", R"("gelu_pytorch_tanh")"},
    {"hidden_size", "i", "2304"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "9216"}, {"layer_types", "S?", "null"},
    {"max_position_embeddings", "i", "8192"}, {"num_attention_heads", "i", "8"},
    {"num_hidden_layers", "i", "26"}, {"num_key_value_heads", "i", "4"},
    {"pad_token_id", "i?", "0"}, {"query_pre_attn_scalar", "i", "256"},
    {"rms_norm_eps", "f", "1e-06"}, {"rope_parameters", "o?", "null"},
    {"sliding_window", "i?", "4096"}, {"tie_word_embeddings", "b", "true"},
    {"use_bidirectional_attention", "b?", "null"}, {"use_cache", "b", "true"},
    {"vocab_size", "i", "256000"},
};
constexpr ConfigAttribute kGemma3Text[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f?", "0.0"},
    {"attn_logit_softcapping", "f?", "null"}, {"final_logit_softcapping", "f?", "null"},
    {"head_dim", "i", "256"}, {"hidden_activation", "s", R"("gelu_pytorch_tanh")"},
    {"hidden_size", "i", "2304"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "9216"}, {"layer_types", "S?", "null"},
    {"max_position_embeddings", "i", "131072"}, {"num_attention_heads", "i", "8"},
    {"num_hidden_layers", "i", "26"}, {"num_key_value_heads", "i", "4"},
    {"pad_token_id", "i?", "0"}, {"query_pre_attn_scalar", "i", "256"},
    {"rms_norm_eps", "f", "1e-06"}, {"rope_parameters", "o?", "null"},
    {"sliding_window", "i?", "4096"}, {"sliding_window_pattern", "i", "6"},
    {"tie_word_embeddings", "b", "true"}, {"use_bidirectional_attention", "b?", "false"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "262208"},
};
constexpr ConfigAttribute kGpt2[] = {
    {"activation_function", "s", R"("gelu_new")"}, {"add_cross_attention", "b", "false"},
    {"attn_pdrop", "f", "0.1"}, {"embd_pdrop", "f", "0.1"}, {"initializer_range", "f", "0.02"},
    {"layer_norm_epsilon", "f", "1e-05"}, {"n_embd", "i", "768"}, {"n_head", "i", "12"},
    {"n_inner", "i?", "null"}, {"n_layer", "i", "12"}, {"n_positions", "i", "1024"},
    {"pad_token_id", "i?", "null"}, {"reorder_and_upcast_attn", "b", "false"},
    {"resid_pdrop", "f", "0.1"}, {"scale_attn_by_inverse_layer_idx", "b", "false"},
    {"scale_attn_weights", "b", "true"}, {"summary_activation", "s?", "null"},
    {"summary_first_dropout", "f", "0.1"}, {"summary_proj_to_labels", "b", "true"},
    {"summary_type", "s", R"("cls_index")"}, {"summary_use_proj", "b", "true"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "50257"},
};
constexpr ConfigAlias kGpt2Aliases[] = {
    {"hidden_size", "n_embd"},
    {"max_position_embeddings", "n_positions"},
    {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},
};
constexpr ConfigAttribute kGptBigcode[] = {
    {"activation_function", "s", R"("gelu_pytorch_tanh")"}, {"add_cross_attention", "b", "false"},
    {"attention_softmax_in_fp32", "b", "true"}, {"attn_pdrop", "f", "0.1"},
    {"embd_pdrop", "f", "0.1"}, {"initializer_range", "f", "0.02"},
    {"layer_norm_epsilon", "f", "1e-05"}, {"multi_query", "b", "true"}, {"n_embd", "i", "768"},
    {"n_head", "i", "12"}, {"n_inner", "i?", "null"}, {"n_layer", "i", "12"},
    {"n_positions", "i", "1024"}, {"num_key_value_heads", "i?", "null"},
    {"pad_token_id", "i?", "null"}, {"resid_pdrop", "f", "0.1"},
    {"scale_attention_softmax_in_fp32", "b", "true"}, {"scale_attn_weights", "b", "true"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "50257"},
};
constexpr ConfigAlias kGptBigcodeAliases[] = {
    {"hidden_size", "n_embd"},
    {"max_position_embeddings", "n_positions"},
    {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},
};
constexpr ConfigAttribute kGptNeo[] = {
    {"activation_function", "s", R"("gelu_new")"}, {"attention_dropout", "f", "0.0"},
    {"attention_types", "l?", "null"}, {"classifier_dropout", "f", "0.1"},
    {"embed_dropout", "f", "0.0"}, {"hidden_size", "i", "2048"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i?", "null"}, {"layer_norm_epsilon", "f", "1e-05"},
    {"max_position_embeddings", "i", "2048"}, {"num_heads", "i", "16"}, {"num_layers", "i", "24"},
    {"pad_token_id", "i?", "null"}, {"resid_dropout", "f", "0.0"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "50257"},
    {"window_size", "i", "256"},
};
constexpr ConfigAlias kGptNeoAliases[] = {
    {"num_attention_heads", "num_heads"},
    {"num_hidden_layers", "num_layers"},
};
constexpr ConfigAttribute kGptNeox[] = {
    {"attention_bias", "b", "true"}, {"attention_dropout", "f", "0.0"},
    {"classifier_dropout", "f", "0.1"}, {"head_dim", "i?", "null"},
    {"hidden_act", "s", R"("gelu")"}, {"hidden_dropout", "f", "0.0"}, {"hidden_size", "i", "6144"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "24576"},
    {"is_decoder", "b", "false"}, {"layer_norm_eps", "f", "1e-05"},
    {"max_position_embeddings", "i", "2048"}, {"num_attention_heads", "i", "64"},
    {"num_hidden_layers", "i", "44"}, {"pad_token_id", "i?", "null"},
    {"rope_parameters", "o?", "null"}, {"tie_word_embeddings", "b", "false"},
    {"use_cache", "b", "true"}, {"use_parallel_residual", "b", "true"},
    {"vocab_size", "i", "50432"},
};
constexpr ConfigAttribute kGptj[] = {
    {"activation_function", "s", R"("gelu_new")"}, {"attn_pdrop", "f", "0.0"},
    {"embd_pdrop", "f", "0.0"}, {"initializer_range", "f", "0.02"},
    {"layer_norm_epsilon", "f", "1e-05"}, {"n_embd", "i", "4096"}, {"n_head", "i", "16"},
    {"n_inner", "i?", "null"}, {"n_layer", "i", "28"}, {"n_positions", "i", "2048"},
    {"pad_token_id", "i?", "null"}, {"resid_pdrop", "f", "0.0"}, {"rotary_dim", "i", "64"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "50400"},
};
constexpr ConfigAlias kGptjAliases[] = {
    {"hidden_size", "n_embd"},
    {"max_position_embeddings", "n_positions"},
    {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},
};
constexpr ConfigAttribute kGranite[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f", "0.0"},
    {"attention_multiplier", "f", "1.0"}, {"embedding_multiplier", "f", "1.0"},
    {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "4096"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "11008"},
    {"logits_scaling", "f", "1.0"}, {"max_position_embeddings", "i", "2048"},
    {"mlp_bias", "b", "false"}, {"num_attention_heads", "i", "32"},
    {"num_hidden_layers", "i", "32"}, {"num_key_value_heads", "i?", "null"},
    {"pad_token_id", "i?", "null"}, {"residual_multiplier", "f", "1.0"},
    {"rms_norm_eps", "f", "1e-06"}, {"rope_parameters", "o?", "null"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "32000"},
};
constexpr ConfigAttribute kLlama[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f?", "0.0"},
    {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "4096"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "11008"},
    {"max_position_embeddings", "i", "2048"}, {"mlp_bias", "b", "false"},
    {"num_attention_heads", "i", "32"}, {"num_hidden_layers", "i", "32"},
    {"num_key_value_heads", "i?", "null"}, {"pad_token_id", "i?", "null"},
    {"pretraining_tp", "i?", "1"}, {"rms_norm_eps", "f", "1e-06"},
    {"rope_parameters", "o?", "null"}, {"tie_word_embeddings", "b", "false"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "32000"},
};
constexpr ConfigAttribute kMarian[] = {
    {"activation_dropout", "f", "0.0"}, {"activation_function", "s", R"("gelu")"},
    {"attention_dropout", "f", "0.0"}, {"d_model", "i", "1024"},
    {"decoder_attention_heads", "i", "16"}, {"decoder_ffn_dim", "i", "4096"},
    {"decoder_layerdrop", "f", "0.0"}, {"decoder_layers", "i", "12"},
    {"decoder_vocab_size", "i?", "null"}, {"dropout", "f", "0.1"},
    {"encoder_attention_heads", "i", "16"}, {"encoder_ffn_dim", "i", "4096"},
    {"encoder_layerdrop", "f", "0.0"}, {"encoder_layers", "i", "12"}, {"init_std", "f", "0.02"},
    {"is_decoder", "b", "false"}, {"is_encoder_decoder", "b", "true"},
    {"max_position_embeddings", "i", "1024"}, {"pad_token_id", "i?", "58100"},
    {"scale_embedding", "b", "false"}, {"share_encoder_decoder_embeddings", "b", "true"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "58101"},
};
constexpr ConfigAlias kMarianAliases[] = {
    {"hidden_size", "d_model"},
    {"num_attention_heads", "encoder_attention_heads"},
    {"num_hidden_layers", "encoder_layers"},
};
constexpr ConfigAttribute kMbart[] = {
    {"activation_dropout", "f", "0.0"}, {"activation_function", "s", R"("gelu")"},
    {"attention_dropout", "f", "0.0"}, {"classifier_dropout", "f", "0.0"}, {"d_model", "i", "1024"},
    {"decoder_attention_heads", "i", "16"}, {"decoder_ffn_dim", "i", "4096"},
    {"decoder_layerdrop", "f", "0.0"}, {"decoder_layers", "i", "12"}, {"dropout", "f", "0.1"},
    {"encoder_attention_heads", "i", "16"}, {"encoder_ffn_dim", "i", "4096"},
    {"encoder_layerdrop", "f", "0.0"}, {"encoder_layers", "i", "12"}, {"init_std", "f", "0.02"},
    {"is_decoder", "b", "false"}, {"is_encoder_decoder", "b", "true"},
    {"max_position_embeddings", "i", "1024"}, {"pad_token_id", "i?", "1"},
    {"scale_embedding", "b", "false"}, {"tie_word_embeddings", "b", "true"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "50265"},
};
constexpr ConfigAlias kMbartAliases[] = {
    {"hidden_size", "d_model"},
    {"num_attention_heads", "encoder_attention_heads"},
    {"num_hidden_layers", "encoder_layers"},
};
constexpr ConfigAttribute kMistral[] = {
    {"attention_dropout", "f", "0.0"}, {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"},
    {"hidden_size", "i", "4096"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "14336"}, {"max_position_embeddings", "i", "131072"},
    {"num_attention_heads", "i", "32"}, {"num_hidden_layers", "i", "32"},
    {"num_key_value_heads", "i", "8"}, {"pad_token_id", "i?", "null"},
    {"rms_norm_eps", "f", "1e-06"}, {"rope_parameters", "o?", "null"},
    {"sliding_window", "i?", "4096"}, {"tie_word_embeddings", "b", "false"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "32000"},
};
constexpr ConfigAttribute kMixtral[] = {
    {"attention_dropout", "f", "0.0"}, {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"},
    {"hidden_size", "i", "4096"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "14336"}, {"max_position_embeddings", "i", "131072"},
    {"num_attention_heads", "i", "32"}, {"num_experts_per_tok", "i", "2"},
    {"num_hidden_layers", "i", "32"}, {"num_key_value_heads", "i", "8"},
    {"num_local_experts", "i", "8"}, {"output_router_logits", "b", "false"},
    {"pad_token_id", "i?", "null"}, {"rms_norm_eps", "f", "1e-05"},
    {"rope_parameters", "o?", "null"}, {"router_aux_loss_coef", "f", "0.001"},
    {"router_jitter_noise", "f", "0.0"}, {"sliding_window", "i?", "null"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "32000"},
};
constexpr ConfigAlias kMixtralAliases[] = {
    {"num_experts", "num_local_experts"},
};
constexpr ConfigAttribute kModernbert[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f", "0.0"},
    {"classifier_activation", "s", R"("gelu")"}, {"classifier_bias", "b", "false"},
    {"classifier_dropout", "f", "0.0"}, {"classifier_pooling", "s", R"("cls")"},
    {"decoder_bias", "b", "true"}, {"deterministic_flash_attn", "b", "false"},
    {"embedding_dropout", "f", "0.0"}, {"global_attn_every_n_layers", "i", "3"},
    {"head_dim", "i?", "null"}, {"hidden_activation", "s", R"("gelu")"},
    {"hidden_size", "i", "768"}, {"initializer_cutoff_factor", "f", "2.0"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "1152"},
    {"layer_types", "S?", "null"}, {"local_attention", "i", "128"},
    {"max_position_embeddings", "i", "8192"}, {"mlp_bias", "b", "false"},
    {"mlp_dropout", "f", "0.0"}, {"norm_bias", "b", "false"}, {"norm_eps", "f", "1e-05"},
    {"num_attention_heads", "i", "12"}, {"num_hidden_layers", "i", "22"},
    {"pad_token_id", "i?", "50283"}, {"rope_parameters", "o?", "null"},
    {"sliding_window", "i?", "null"}, {"sparse_pred_ignore_index", "i", "-100"},
    {"sparse_prediction", "b", "false"}, {"tie_word_embeddings", "b", "true"},
    {"vocab_size", "i", "50368"},
};
constexpr ConfigAttribute kMpt[] = {
    {"attn_config", "o", R"({"attn_type":"multihead_attention", "attn_pdrop":0,)"
    R"("attn_impl":"torch", "clip_qkv":null, "softmax_scale":null,)"
    R"("prefix_lm":false, "qk_ln":false, "attn_uses_sequence_id":false,)"
    R"("alibi":true, "alibi_bias_max":8})"}, {"d_model", "i", "2048"}, {"emb_pdrop", "f", "0.0"},
    {"embedding_fraction", "f", "1.0"}, {"expansion_ratio", "i", "4"},
    {"initializer_range", "f", "0.02"}, {"layer_norm_epsilon", "f", "1e-05"},
    {"learned_pos_emb", "b", "true"}, {"logit_scale", "fs?", "null"}, {"max_seq_len", "i", "2048"},
    {"n_heads", "i", "16"}, {"n_layers", "i", "24"}, {"no_bias", "b", "true"},
    {"norm_type", "s", R"("low_precision_layernorm")"}, {"pad_token_id", "i?", "null"},
    {"resid_pdrop", "f", "0.0"}, {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "false"},
    {"vocab_size", "i", "50368"},
};
constexpr ConfigAlias kMptAliases[] = {
    {"hidden_size", "d_model"},
    {"num_attention_heads", "n_heads"},
    {"num_hidden_layers", "n_layers"},
};
constexpr ConfigAttribute kMt5[] = {
    {"classifier_dropout", "f", "0.0"}, {"d_ff", "i", "1024"}, {"d_kv", "i", "64"},
    {"d_model", "i", "512"}, {"dense_act_fn", "s?", "null"}, {"dropout_rate", "f", "0.1"},
    {"feed_forward_proj", "s", R"("gated-gelu")"}, {"initializer_factor", "f", "1.0"},
    {"is_decoder", "b", "false"}, {"is_encoder_decoder", "b", "true"},
    {"is_gated_act", "b?", "null"}, {"layer_norm_epsilon", "f", "1e-06"},
    {"num_decoder_layers", "i?", "null"}, {"num_heads", "i", "6"}, {"num_layers", "i", "8"},
    {"pad_token_id", "i?", "0"}, {"relative_attention_max_distance", "i", "128"},
    {"relative_attention_num_buckets", "i", "32"}, {"tie_word_embeddings", "b", "true"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "250112"},
};
constexpr ConfigAlias kMt5Aliases[] = {
    {"head_dim", "d_kv"},
    {"hidden_size", "d_model"},
    {"num_attention_heads", "num_heads"},
    {"num_hidden_layers", "num_layers"},
};
constexpr ConfigAttribute kOlmo[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f", "0.0"}, {"clip_qkv", "f?", "null"},
    {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "4096"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "11008"},
    {"max_position_embeddings", "i", "2048"}, {"num_attention_heads", "i", "32"},
    {"num_hidden_layers", "i", "32"}, {"num_key_value_heads", "i?", "null"},
    {"pad_token_id", "i?", "1"}, {"rope_parameters", "o?", "null"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "50304"},
};
constexpr ConfigAttribute kOlmo2[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f", "0.0"}, {"head_dim", "i?", "null"},
    {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "4096"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "11008"},
    {"max_position_embeddings", "i", "2048"}, {"num_attention_heads", "i", "32"},
    {"num_hidden_layers", "i", "32"}, {"num_key_value_heads", "i?", "null"},
    {"pad_token_id", "i?", "1"}, {"rms_norm_eps", "f", "1e-05"}, {"rope_parameters", "o?", "null"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "50304"},
};
constexpr ConfigAttribute kOpt[] = {
    {"_remove_final_layer_norm", "b", "false"}, {"activation_function", "s", R"("relu")"},
    {"attention_dropout", "f", "0.0"}, {"do_layer_norm_before", "b", "true"},
    {"dropout", "f", "0.1"}, {"enable_bias", "b", "true"}, {"ffn_dim", "i", "3072"},
    {"hidden_size", "i", "768"}, {"init_std", "f", "0.02"},
    {"layer_norm_elementwise_affine", "b", "true"}, {"layerdrop", "f", "0.0"},
    {"max_position_embeddings", "i", "2048"}, {"num_attention_heads", "i", "12"},
    {"num_hidden_layers", "i", "12"}, {"pad_token_id", "i?", "1"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "50272"},
    {"word_embed_proj_dim", "i?", "null"},
};
constexpr ConfigAttribute kPegasus[] = {
    {"activation_dropout", "f", "0.0"}, {"activation_function", "s", R"("gelu")"},
    {"attention_dropout", "f", "0.0"}, {"d_model", "i", "1024"},
    {"decoder_attention_heads", "i", "16"}, {"decoder_ffn_dim", "i", "4096"},
    {"decoder_layerdrop", "f", "0.0"}, {"decoder_layers", "i", "12"}, {"dropout", "f", "0.1"},
    {"encoder_attention_heads", "i", "16"}, {"encoder_ffn_dim", "i", "4096"},
    {"encoder_layerdrop", "f", "0.0"}, {"encoder_layers", "i", "12"}, {"init_std", "f", "0.02"},
    {"is_decoder", "b", "false"}, {"is_encoder_decoder", "b", "true"},
    {"max_position_embeddings", "i", "1024"}, {"pad_token_id", "i?", "0"},
    {"scale_embedding", "b", "false"}, {"tie_word_embeddings", "b", "true"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "50265"},
};
constexpr ConfigAlias kPegasusAliases[] = {
    {"hidden_size", "d_model"},
    {"num_attention_heads", "encoder_attention_heads"},
    {"num_hidden_layers", "encoder_layers"},
};
constexpr ConfigAttribute kPhi[] = {
    {"attention_dropout", "f?", "0.0"}, {"embd_pdrop", "f", "0.0"}, {"head_dim", "i?", "null"},
    {"hidden_act", "s", R"("gelu_new")"}, {"hidden_size", "i", "2048"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "8192"},
    {"layer_norm_eps", "f", "1e-05"}, {"max_position_embeddings", "i", "2048"},
    {"num_attention_heads", "i", "32"}, {"num_hidden_layers", "i", "24"},
    {"num_key_value_heads", "i?", "null"}, {"pad_token_id", "i?", "null"},
    {"partial_rotary_factor", "f", "0.5"}, {"qk_layernorm", "b", "false"},
    {"resid_pdrop", "f", "0.0"}, {"rope_parameters", "o?", "null"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "51200"},
};
constexpr ConfigAttribute kPhi3[] = {
    {"attention_dropout", "f", "0.0"}, {"embd_pdrop", "f", "0.0"}, {"head_dim", "i?", "null"},
    {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "3072"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "8192"},
    {"max_position_embeddings", "i", "4096"}, {"num_attention_heads", "i", "32"},
    {"num_hidden_layers", "i", "32"}, {"num_key_value_heads", "i?", "null"},
    {"original_max_position_embeddings", "i", "4096"}, {"pad_token_id", "i?", "32000"},
    {"resid_pdrop", "f", "0.0"}, {"rms_norm_eps", "f", "1e-05"}, {"rope_parameters", "o?", "null"},
    {"sliding_window", "i?", "null"}, {"tie_word_embeddings", "b", "false"},
    {"use_cache", "b", "true"}, {"vocab_size", "i", "32064"},
};
constexpr ConfigAttribute kQwen2[] = {
    {"attention_dropout", "f", "0.0"}, {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"},
    {"hidden_size", "i", "4096"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "22016"}, {"layer_types", "S?", "null"},
    {"max_position_embeddings", "i", "32768"}, {"max_window_layers", "i", "28"},
    {"num_attention_heads", "i", "32"}, {"num_hidden_layers", "i", "32"},
    {"num_key_value_heads", "i?", "32"}, {"pad_token_id", "i?", "null"},
    {"rms_norm_eps", "f", "1e-06"}, {"rope_parameters", "o?", "null"},
    {"sliding_window", "i?", "4096"}, {"tie_word_embeddings", "b", "false"},
    {"use_cache", "b", "true"}, {"use_sliding_window", "b", "false"}, {"vocab_size", "i", "151936"},
};
constexpr ConfigAttribute kQwen2Moe[] = {
    {"attention_dropout", "f", "0.0"}, {"decoder_sparse_step", "i", "1"},
    {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "2048"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "5632"},
    {"layer_types", "S?", "null"}, {"max_position_embeddings", "i", "32768"},
    {"max_window_layers", "i", "28"}, {"mlp_only_layers", "I?", "null"},
    {"moe_intermediate_size", "i", "1408"}, {"norm_topk_prob", "b", "false"},
    {"num_attention_heads", "i", "16"}, {"num_experts", "i", "60"},
    {"num_experts_per_tok", "i", "4"}, {"num_hidden_layers", "i", "24"},
    {"num_key_value_heads", "i?", "16"}, {"output_router_logits", "b", "false"},
    {"pad_token_id", "i?", "null"}, {"qkv_bias", "b", "true"}, {"rms_norm_eps", "f", "1e-06"},
    {"rope_parameters", "o?", "null"}, {"router_aux_loss_coef", "f", "0.001"},
    {"shared_expert_intermediate_size", "i", "5632"}, {"sliding_window", "i?", "4096"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"},
    {"use_sliding_window", "b", "false"}, {"vocab_size", "i", "151936"},
};
constexpr ConfigAttribute kQwen2VlText[] = {
    {"attention_dropout", "f?", "0.0"}, {"head_dim", "i?", "null"},
    {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "8192"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "29568"},
    {"layer_types", "S?", "null"}, {"max_position_embeddings", "i", "32768"},
    {"max_window_layers", "i?", "80"}, {"num_attention_heads", "i", "64"},
    {"num_hidden_layers", "i", "80"}, {"num_key_value_heads", "i?", "8"},
    {"pad_token_id", "i?", "null"}, {"rms_norm_eps", "f", "1e-05"},
    {"rope_parameters", "o?", "null"}, {"sliding_window", "i?", "4096"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"},
    {"use_sliding_window", "b?", "false"}, {"vocab_size", "i", "152064"},
};
constexpr ConfigAttribute kQwen3[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f", "0.0"}, {"head_dim", "i", "128"},
    {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "4096"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "22016"},
    {"layer_types", "S?", "null"}, {"max_position_embeddings", "i", "32768"},
    {"max_window_layers", "i", "28"}, {"num_attention_heads", "i", "32"},
    {"num_hidden_layers", "i", "32"}, {"num_key_value_heads", "i?", "32"},
    {"pad_token_id", "i?", "null"}, {"rms_norm_eps", "f", "1e-06"},
    {"rope_parameters", "o?", "null"}, {"sliding_window", "i?", "4096"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"},
    {"use_sliding_window", "b", "false"}, {"vocab_size", "i", "151936"},
};
constexpr ConfigAttribute kQwen3Moe[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f", "0.0"},
    {"decoder_sparse_step", "i", "1"}, {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"},
    {"hidden_size", "i", "2048"}, {"initializer_range", "f", "0.02"},
    {"intermediate_size", "i", "6144"}, {"max_position_embeddings", "i", "32768"},
    {"mlp_only_layers", "I?", "null"}, {"moe_intermediate_size", "i", "768"},
    {"norm_topk_prob", "b", "false"}, {"num_attention_heads", "i", "32"},
    {"num_experts_per_tok", "i", "8"}, {"num_hidden_layers", "i", "24"},
    {"num_key_value_heads", "i", "4"}, {"num_local_experts", "i", "128"},
    {"output_router_logits", "b", "false"}, {"pad_token_id", "i?", "null"},
    {"rms_norm_eps", "f", "1e-06"}, {"rope_parameters", "o?", "null"},
    {"router_aux_loss_coef", "f", "0.001"}, {"sliding_window", "i?", "4096"},
    {"tie_word_embeddings", "b", "false"}, {"use_cache", "b", "true"},
    {"use_sliding_window", "b", "false"}, {"vocab_size", "i", "151936"},
};
constexpr ConfigAlias kQwen3MoeAliases[] = {
    {"num_experts", "num_local_experts"},
};
constexpr ConfigAttribute kRoberta[] = {
    {"add_cross_attention", "b", "false"}, {"attention_probs_dropout_prob", "f", "0.1"},
    {"classifier_dropout", "f?", "null"}, {"hidden_act", "s", R"("gelu")"},
    {"hidden_dropout_prob", "f", "0.1"}, {"hidden_size", "i", "768"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "3072"},
    {"is_decoder", "b", "false"}, {"layer_norm_eps", "f", "1e-12"},
    {"max_position_embeddings", "i", "512"}, {"num_attention_heads", "i", "12"},
    {"num_hidden_layers", "i", "12"}, {"pad_token_id", "i?", "1"},
    {"tie_word_embeddings", "b", "true"}, {"type_vocab_size", "i", "2"}, {"use_cache", "b", "true"},
    {"vocab_size", "i", "50265"},
};
constexpr ConfigAttribute kSmollm3[] = {
    {"attention_bias", "b", "false"}, {"attention_dropout", "f", "0.0"}, {"head_dim", "i?", "null"},
    {"hidden_act", "s", R"("silu")"}, {"hidden_size", "i", "2048"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "11008"},
    {"layer_types", "S?", "null"}, {"max_position_embeddings", "i", "32768"},
    {"mlp_bias", "b", "false"}, {"no_rope_layer_interval", "i", "4"},
    {"no_rope_layers", "I?", "null"}, {"num_attention_heads", "i", "16"},
    {"num_hidden_layers", "i", "36"}, {"num_key_value_heads", "i?", "4"},
    {"pad_token_id", "i?", "128004"}, {"rms_norm_eps", "f", "1e-06"},
    {"rope_parameters", "o?", "null"}, {"sliding_window", "i?", "null"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"},
    {"use_sliding_window", "b", "false"}, {"vocab_size", "i", "128256"},
};
constexpr ConfigAttribute kStablelm[] = {
    {"attention_dropout", "f", "0.0"}, {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("silu")"},
    {"hidden_dropout", "f", "0.0"}, {"hidden_size", "i", "2560"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "6912"},
    {"layer_norm_eps", "f", "1e-05"}, {"max_position_embeddings", "i", "4096"},
    {"num_attention_heads", "i", "32"}, {"num_hidden_layers", "i", "32"},
    {"num_key_value_heads", "i", "32"}, {"pad_token_id", "i?", "null"},
    {"partial_rotary_factor", "f", "0.25"}, {"qk_layernorm", "b", "false"},
    {"rope_parameters", "o?", "null"}, {"tie_word_embeddings", "b", "false"},
    {"use_cache", "b", "true"}, {"use_parallel_residual", "b", "false"},
    {"use_qkv_bias", "b", "false"}, {"vocab_size", "i", "50304"},
};
constexpr ConfigAttribute kStarcoder2[] = {
    {"attention_dropout", "f", "0.0"}, {"embedding_dropout", "f", "0.0"},
    {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("gelu_pytorch_tanh")"},
    {"hidden_size", "i", "3072"}, {"initializer_range", "f", "0.018042"},
    {"intermediate_size", "i", "12288"}, {"max_position_embeddings", "i", "4096"},
    {"norm_epsilon", "f", "1e-05"}, {"num_attention_heads", "i", "24"},
    {"num_hidden_layers", "i", "30"}, {"num_key_value_heads", "i", "2"},
    {"pad_token_id", "i?", "null"}, {"residual_dropout", "f", "0.0"},
    {"rope_parameters", "o?", "null"}, {"sliding_window", "i?", "null"},
    {"tie_word_embeddings", "b", "true"}, {"use_bias", "b", "true"}, {"use_cache", "b", "true"},
    {"vocab_size", "i", "49152"},
};
constexpr ConfigAttribute kT5[] = {
    {"classifier_dropout", "f", "0.0"}, {"d_ff", "i", "2048"}, {"d_kv", "i", "64"},
    {"d_model", "i", "512"}, {"dense_act_fn", "s?", "null"}, {"dropout_rate", "f", "0.1"},
    {"feed_forward_proj", "s", R"("relu")"}, {"initializer_factor", "f", "1.0"},
    {"is_decoder", "b", "false"}, {"is_encoder_decoder", "b", "true"},
    {"is_gated_act", "b?", "null"}, {"layer_norm_epsilon", "f", "1e-06"},
    {"num_decoder_layers", "i?", "null"}, {"num_heads", "i", "8"}, {"num_layers", "i", "6"},
    {"pad_token_id", "i?", "0"}, {"relative_attention_max_distance", "i", "128"},
    {"relative_attention_num_buckets", "i", "32"}, {"scale_decoder_outputs", "b?", "null"},
    {"tie_word_embeddings", "b", "true"}, {"use_cache", "b", "true"}, {"vocab_size", "i", "32128"},
};
constexpr ConfigAlias kT5Aliases[] = {
    {"head_dim", "d_kv"},
    {"hidden_size", "d_model"},
    {"num_attention_heads", "num_heads"},
    {"num_hidden_layers", "num_layers"},
};
constexpr ConfigAttribute kTorchTransformer[] = {
    {"d_model", "i", "512"}, {"dim_feedforward", "i", "2048"}, {"dropout", "f", "0.1"},
    {"max_len", "i", "5000"}, {"nhead", "i", "8"}, {"num_decoder_layers", "i", "6"},
    {"num_encoder_layers", "i", "6"}, {"tie_word_embeddings", "b", "false"},
    {"vocab_size", "i", "32000"},
};
constexpr ConfigAlias kTorchTransformerAliases[] = {
    {"hidden_size", "d_model"},
    {"max_position_embeddings", "max_len"},
    {"num_attention_heads", "nhead"},
    {"num_hidden_layers", "num_encoder_layers"},
};
constexpr ConfigAttribute kVit[] = {
    {"attention_probs_dropout_prob", "f", "0.0"}, {"encoder_stride", "i", "16"},
    {"head_dim", "i?", "null"}, {"hidden_act", "s", R"("gelu")"},
    {"hidden_dropout_prob", "f", "0.0"}, {"hidden_size", "i", "768"}, {"image_size", "i", "224"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "3072"},
    {"layer_norm_eps", "f", "1e-12"}, {"num_attention_heads", "i", "12"},
    {"num_channels", "i", "3"}, {"num_hidden_layers", "i", "12"}, {"patch_size", "i", "16"},
    {"pooler_act", "s", R"("tanh")"}, {"pooler_output_size", "i?", "null"},
    {"qkv_bias", "b", "true"}, {"tie_word_embeddings", "b", "false"},
};
constexpr ConfigAttribute kWhisper[] = {
    {"activation_dropout", "f", "0.0"}, {"activation_function", "s", R"("gelu")"},
    {"attention_dropout", "f", "0.0"}, {"classifier_proj_size", "i", "256"},
    {"d_model", "i", "384"}, {"decoder_attention_heads", "i", "6"},
    {"decoder_ffn_dim", "i", "1536"}, {"decoder_layerdrop", "f", "0.0"},
    {"decoder_layers", "i", "4"}, {"dropout", "f", "0.0"}, {"encoder_attention_heads", "i", "6"},
    {"encoder_ffn_dim", "i", "1536"}, {"encoder_layerdrop", "f", "0.0"},
    {"encoder_layers", "i", "4"}, {"init_std", "f", "0.02"}, {"is_encoder_decoder", "b", "true"},
    {"max_source_positions", "i", "1500"}, {"max_target_positions", "i", "448"},
    {"median_filter_width", "i", "7"}, {"num_mel_bins", "i", "80"}, {"pad_token_id", "i?", "50256"},
    {"scale_embedding", "b", "false"}, {"tie_word_embeddings", "b", "true"},
    {"use_cache", "b", "true"}, {"use_weighted_layer_sum", "b", "false"},
    {"vocab_size", "i", "51865"},
};
constexpr ConfigAlias kWhisperAliases[] = {
    {"hidden_size", "d_model"},
    {"num_attention_heads", "encoder_attention_heads"},
    {"num_hidden_layers", "encoder_layers"},
    {"num_key_value_heads", "encoder_attention_heads"},
};
constexpr ConfigAttribute kXlmRoberta[] = {
    {"add_cross_attention", "b", "false"}, {"attention_probs_dropout_prob", "f", "0.1"},
    {"classifier_dropout", "f?", "null"}, {"hidden_act", "s", R"("gelu")"},
    {"hidden_dropout_prob", "f", "0.1"}, {"hidden_size", "i", "768"},
    {"initializer_range", "f", "0.02"}, {"intermediate_size", "i", "3072"},
    {"is_decoder", "b", "false"}, {"layer_norm_eps", "f", "1e-12"},
    {"max_position_embeddings", "i", "512"}, {"num_attention_heads", "i", "12"},
    {"num_hidden_layers", "i", "12"}, {"pad_token_id", "i?", "1"},
    {"tie_word_embeddings", "b", "true"}, {"type_vocab_size", "i", "2"}, {"use_cache", "b", "true"},
    {"vocab_size", "i", "30522"},
};

constexpr ConfigClass kClasses[] = {
    {"albert", kAlbert, {}, 10000.0, ""},
    {"bart", kBart, kBartAliases, 10000.0, ""},
    {"bert", kBert, {}, 10000.0, ""},
    {"bloom", kBloom, kBloomAliases, 10000.0, ""},
    {"camembert", kCamembert, {}, 10000.0, ""},
    {"codegen", kCodegen, kCodegenAliases, 10000.0, ""},
    {"cohere", kCohere, {}, 500000.0, ""},
    {"deberta", kDeberta, {}, 10000.0, ""},
    {"deberta-v2", kDebertaV2, {}, 10000.0, ""},
    {"deit", kDeit, {}, 10000.0, ""},
    {"distilbert", kDistilbert, kDistilbertAliases, 10000.0, ""},
    {"electra", kElectra, {}, 10000.0, ""},
    {"falcon", kFalcon, {}, 10000.0, ""},
    {"gemma", kGemma, {}, 10000.0, ""},
    {"gemma2", kGemma2, {}, 10000.0, ""},
    {"gemma3", {}, {}, 0, "gemma3_text"},
    {"gemma3_text", kGemma3Text, {}, 10000.0, ""},
    {"gpt2", kGpt2, kGpt2Aliases, 10000.0, ""},
    {"gpt_bigcode", kGptBigcode, kGptBigcodeAliases, 10000.0, ""},
    {"gpt_neo", kGptNeo, kGptNeoAliases, 10000.0, ""},
    {"gpt_neox", kGptNeox, {}, 10000.0, ""},
    {"gptj", kGptj, kGptjAliases, 10000.0, ""},
    {"granite", kGranite, {}, 10000.0, ""},
    {"llama", kLlama, {}, 10000.0, ""},
    {"llava", {}, {}, 0, "llama"},
    {"marian", kMarian, kMarianAliases, 10000.0, ""},
    {"mbart", kMbart, kMbartAliases, 10000.0, ""},
    {"mistral", kMistral, {}, 10000.0, ""},
    {"mixtral", kMixtral, kMixtralAliases, 1000000.0, ""},
    {"modernbert", kModernbert, {}, 10000.0, ""},
    {"mpt", kMpt, kMptAliases, 10000.0, ""},
    {"mt5", kMt5, kMt5Aliases, 10000.0, ""},
    {"olmo", kOlmo, {}, 10000.0, ""},
    {"olmo2", kOlmo2, {}, 10000.0, ""},
    {"opt", kOpt, {}, 10000.0, ""},
    {"pegasus", kPegasus, kPegasusAliases, 10000.0, ""},
    {"phi", kPhi, {}, 10000.0, ""},
    {"phi3", kPhi3, {}, 10000.0, ""},
    {"qwen2", kQwen2, {}, 10000.0, ""},
    {"qwen2_moe", kQwen2Moe, {}, 10000.0, ""},
    {"qwen2_vl", {}, {}, 0, "qwen2_vl_text"},
    {"qwen2_vl_text", kQwen2VlText, {}, 1000000.0, ""},
    {"qwen3", kQwen3, {}, 10000.0, ""},
    {"qwen3_moe", kQwen3Moe, kQwen3MoeAliases, 10000.0, ""},
    {"roberta", kRoberta, {}, 10000.0, ""},
    {"smollm3", kSmollm3, {}, 2000000.0, ""},
    {"stablelm", kStablelm, {}, 10000.0, ""},
    {"starcoder2", kStarcoder2, {}, 10000.0, ""},
    {"t5", kT5, kT5Aliases, 10000.0, ""},
    {"torch-transformer", kTorchTransformer, kTorchTransformerAliases, 10000.0, ""},
    {"vit", kVit, {}, 10000.0, ""},
    {"whisper", kWhisper, kWhisperAliases, 10000.0, ""},
    {"xlm-roberta", kXlmRoberta, {}, 10000.0, ""},
};
// clang-format on

}  // namespace

std::span<const ConfigClass> ConfigClasses() { return kClasses; }

std::span<const ConfigAttribute> CommonConfigAttributes() { return kCommon; }

const ConfigClass* FindConfigClass(std::string_view model_type) {
  const auto found = std::ranges::lower_bound(kClasses, model_type, {}, &ConfigClass::model_type);
  return found != std::end(kClasses) && found->model_type == model_type ? found : nullptr;
}

}  // namespace headroom
