# SPDX-License-Identifier: Apache-2.0
#
# cmake --install: the program, and the components for find_package(headroom) with the headers that
# are meant for others. Each header compiles alone against the installed tree (.ci/run install).
include(CMakePackageConfigHelpers)

set(HEADROOM_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/headroom)

# headroom_install(COMPONENT HEADER …): the component and its public headers.
function(headroom_install COMPONENT)
  foreach(HEADER IN LISTS ARGN)
    cmake_path(GET HEADER PARENT_PATH FOLDER)
    install(FILES ${PROJECT_SOURCE_DIR}/src/${COMPONENT}/${HEADER}
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/headroom/${COMPONENT}/${FOLDER})
  endforeach()
  install(TARGETS headroom_${COMPONENT} EXPORT headroomTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

headroom_install(base bytes.h check.h dtype.h file.h nearest.h result.h shape.h)
headroom_install(ledger component.h distinct_values.h event_log.h ledger.h ledger_json.h)
headroom_install(model catalogue.h config.h locate.h lora_config.h parallel.h parameter_table.h
  recipe.h safetensors.h training_arguments.h)
headroom_install(predict allocation_trace.h allocator_options.h op_observer.h predict.h)
headroom_install(advise advice.h largest.h levers.h op_profile.h realise.h step_cost.h workbench.h)
headroom_install(graph arena.h builder.h gradients.h graph.h lifetimes.h memory_plan.h op.h optimizer.h
  precision.h recompute.h reuse.h verify.h)
headroom_install(engine budget.h checkpoint.h data/batches.h data/dataset.h data/post_processor.h
  data/prefetcher.h data/tokenizer.h device.h executor.h files/atomic_file.h files/mapped_file.h
  files/safetensors_file.h files/weights.h grad_scaler.h models/model_graph.h native_step.h op_call.h
  schedule.h step_set.h train_options.h trainer.h)
headroom_install(observe classify.h event_table.h frame_facts.h holders.h nvml.h oom_message.h
  phases.h process_table.h recording.h replay.h snapshot.h stack_class.h stack_table.h
  string_table.h time_column.h training_args.h)
headroom_install(report chart_text.h diff_page.h diff_report.h explain_page.h explain_report.h
  explain_text.h fit_report.h html_report.h json.h module_tree.h oom_report.h ops_report.h
  parameters_report.h plan_page.h plan_report.h plan_text.h score_report.h score_text.h snapshot_export.h
  text.h train_report.h)

# add_component keeps private libraries out of the export; these have code to link.
target_link_libraries(headroom_model INTERFACE $<INSTALL_INTERFACE:$<LINK_ONLY:yaml-cpp>>)
foreach(LIBRARY IN ITEMS headroom::pcre2 headroom::utf8proc Threads::Threads)
  target_link_libraries(headroom_engine INTERFACE $<INSTALL_INTERFACE:$<LINK_ONLY:${LIBRARY}>>)
endforeach()
foreach(LIBRARY IN ITEMS ZLIB::ZLIB ${CMAKE_DL_LIBS})
  target_link_libraries(headroom_observe INTERFACE $<INSTALL_INTERFACE:$<LINK_ONLY:${LIBRARY}>>)
endforeach()

configure_package_config_file(cmake/headroomConfig.cmake.in headroomConfig.cmake
  INSTALL_DESTINATION ${HEADROOM_PACKAGE_DIR})
write_basic_package_version_file(headroomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/headroomConfig.cmake ${PROJECT_BINARY_DIR}/headroomConfigVersion.cmake
  DESTINATION ${HEADROOM_PACKAGE_DIR})
install(EXPORT headroomTargets NAMESPACE headroom:: DESTINATION ${HEADROOM_PACKAGE_DIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
