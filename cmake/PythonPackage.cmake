# Where the extension module and the program go: into the Python package in the tree for development
# (as links, so that a rebuild is seen at once), and into the wheel at install.
# The target headrace_python builds both and nothing else.
if(HEADRACE_PYTHON_IN_TREE)
  add_custom_target(headrace_python)
  set(_hr_package "${CMAKE_SOURCE_DIR}/python/headrace")
  if(TARGET headrace_native)
    add_custom_target(headrace_native_in_tree ALL
      COMMAND ${CMAKE_COMMAND} -E create_symlink
        $<TARGET_FILE:headrace_native> ${_hr_package}/$<TARGET_FILE_NAME:headrace_native>
      DEPENDS headrace_native VERBATIM)
    add_dependencies(headrace_python headrace_native_in_tree)
  endif()
  if(TARGET headrace_program)
    add_custom_target(headrace_program_in_tree ALL
      COMMAND ${CMAKE_COMMAND} -E make_directory ${_hr_package}/bin
      COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:headrace_program> ${_hr_package}/bin/headrace
      DEPENDS headrace_program VERBATIM)
    add_dependencies(headrace_python headrace_program_in_tree)
  endif()
endif()

if(TARGET headrace_native)
  install(TARGETS headrace_native LIBRARY DESTINATION headrace COMPONENT python)
endif()
if(TARGET headrace_program)
  install(TARGETS headrace_program RUNTIME DESTINATION headrace/bin COMPONENT python)
endif()
