// SPDX-License-Identifier: Apache-2.0
#include "model/locate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

namespace headroom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class LocateModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "locate_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      if (value != nullptr) saved_[name] = value;
      ::unsetenv(name);
    }
  }

  void TearDown() override {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      ::unsetenv(name);
    }
    for (const auto& [name, value] : saved_) ::setenv(name.c_str(), value.c_str(), 1);
    fs::remove_all(root_);
  }

  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  void Set(const char* name, const fs::path& value) { ::setenv(name, value.c_str(), 1); }

  // What was read, or "" when nothing was found.
  std::string TextOf(const std::string& model) {
    const auto located = LocateModel(model);
    EXPECT_TRUE(located.ok()) << located.error().message;
    return *located ? (*located)->config_text : "";
  }

  std::string ErrorOf(const std::string& model) {
    const auto located = LocateModel(model);
    if (located.ok()) return "accepted";
    EXPECT_THAT(located.error().message, Not(HasSubstr("\n")));
    return located.error().message;
  }

  fs::path root_;
  std::map<std::string, std::string> saved_;
};

TEST_F(LocateModelTest, ReadsFileOrFolder) {
  Write("bert/config.json", "text");
  for (const char* form : {"bert", "bert/", "bert/config.json", "bert/."}) {
    const auto located = LocateModel((root_ / form).string());
    ASSERT_TRUE(located.ok()) << form << ": " << located.error().message;
    ASSERT_TRUE(located->has_value()) << form;
    EXPECT_EQ((*located)->config_text, "text");
    EXPECT_EQ((*located)->name, "bert");
    EXPECT_THAT((*located)->origin, HasSubstr("config.json"));
  }
}

TEST_F(LocateModelTest, NamesOtherJsonFilesAfterThemselves) {
  Write("my_llama.json", "text");
  const auto located = LocateModel((root_ / "my_llama.json").string());
  ASSERT_TRUE(located.ok());
  EXPECT_EQ((*located)->name, "my_llama");
}

TEST_F(LocateModelTest, ExpandsHome) {
  Set("HOME", root_);
  Write("m/config.json", "text");
  EXPECT_EQ(TextOf("~/m"), "text");
}

TEST_F(LocateModelTest, FindsNameInCacheByMainRevision) {
  Set("HF_HUB_CACHE", root_);
  Write("models--org--name/snapshots/aaa/config.json", "old");
  Write("models--org--name/snapshots/bbb/config.json", "main");
  Write("models--org--name/snapshots/ccc/config.json", "new");
  Write("models--org--name/refs/main", "bbb\n");
  EXPECT_EQ(TextOf("org/name"), "main");
  EXPECT_EQ(TextOf("org/other"), "");
}

TEST_F(LocateModelTest, TakesNewestSnapshotWithoutMainRevision) {
  Set("HF_HUB_CACHE", root_);
  Write("models--gpt2/snapshots/fff/config.json", "old");
  Write("models--gpt2/snapshots/aaa/config.json", "new");
  Write("models--gpt2/snapshots/bbb/other", "");
  Write("models--gpt2/refs/main", "../../elsewhere");
  fs::last_write_time(root_ / "models--gpt2/snapshots/fff",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(TextOf("gpt2"), "new");
}

TEST_F(LocateModelTest, CacheFolderFollowsTheEnvironment) {
  EXPECT_EQ(UserCache(), fs::path());
  EXPECT_EQ(HuggingFaceCache(), fs::path());
  Set("HOME", "/home/x");
  EXPECT_EQ(UserCache(), "/home/x/.cache");
  EXPECT_EQ(HuggingFaceCache(), "/home/x/.cache/huggingface/hub");
  Set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(UserCache(), "/xdg");
  EXPECT_EQ(HuggingFaceCache(), "/xdg/huggingface/hub");
  Set("HF_HOME", "~/hf");
  EXPECT_EQ(HuggingFaceCache(), "/home/x/hf/hub");
  Set("HF_HUB_CACHE", "/cache");
  EXPECT_EQ(HuggingFaceCache(), "/cache");
}

TEST_F(LocateModelTest, NamesThatAreNowhereAreNotErrors) {
  EXPECT_EQ(TextOf("bert-large-uncased"), "");
  Set("HF_HUB_CACHE", root_ / "absent");
  EXPECT_EQ(TextOf("org/name"), "");
  EXPECT_EQ(TextOf("name with spaces\nand a break"), "");
  EXPECT_EQ(TextOf("..%2f"), "");
}

TEST_F(LocateModelTest, PathsThatDoNotExistAreErrors) {
  for (const char* path : {"./absent", "../absent/x", "/absent", "absent/", "a/b/c", "absent.json",
                           "/absent/config.json"}) {
    EXPECT_THAT(ErrorOf(path), HasSubstr("no such file or folder")) << path;
  }
  EXPECT_THAT(ErrorOf(""), HasSubstr("no model given"));
  EXPECT_THAT(ErrorOf(std::string("a\0b", 3)), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf("./" + std::string(5000, 'x')), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf("./" + std::string(1000, 'x')), HasSubstr("no such file"));
}

TEST_F(LocateModelTest, FoldersWithoutConfigSaySo) {
  fs::create_directories(root_ / "empty");
  EXPECT_THAT(ErrorOf((root_ / "empty").string()), HasSubstr("without config.json"));
  Write("lora/adapter_config.json", "{}");
  EXPECT_THAT(ErrorOf((root_ / "lora").string()), HasSubstr("give the base model"));
}

}  // namespace
}  // namespace headroom
