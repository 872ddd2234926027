# Run by `cmake --install`: writes the manual pages and completion scripts of `program` to `made` and installs them into
# `man_dir` and `data_dir`.
function(ask out)
  execute_process(COMMAND ${program} ${ARGN} OUTPUT_FILE ${out} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "'${program} ${ARGN}' failed with status ${failed}")
  endif()
endfunction()

file(REMOVE_RECURSE ${made})
file(MAKE_DIRECTORY ${made})
ask(${made}/overview --help)
file(STRINGS ${made}/overview lines REGEX "^  [a-z]+  +[A-Za-z]") # "  gen            write a data set"
ask(${made}/millrace.1 help --man)
file(INSTALL ${made}/millrace.1 DESTINATION ${man_dir})
foreach(line ${lines})
  string(REGEX MATCH "[a-z]+" command "${line}")
  ask(${made}/millrace-${command}.1 help --man ${command})
  file(INSTALL ${made}/millrace-${command}.1 DESTINATION ${man_dir})
endforeach()

ask(${made}/millrace help --completion bash)
ask(${made}/_millrace help --completion zsh)
ask(${made}/millrace.fish help --completion fish)
file(INSTALL ${made}/millrace DESTINATION ${data_dir}/bash-completion/completions)
file(INSTALL ${made}/_millrace DESTINATION ${data_dir}/zsh/site-functions)
file(INSTALL ${made}/millrace.fish DESTINATION ${data_dir}/fish/vendor_completions.d)
