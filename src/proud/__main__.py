from proud.cli import main

main()
